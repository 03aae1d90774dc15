// SPDX-License-Identifier: Apache-2.0
// Frozen tensors: parameters that a run uses and never changes. What only their gradients need is taken out of the
// table, so that whoever reads it does neither: a weight part of which every parameter is frozen, tensors that no
// gradient needs any more, and all of backward that leads to nothing trained. Pure.
#pragma once

#include <string>
#include <vector>

#include "strata/layers/declaration.h"

namespace strata {

// declare_layers(model) with the parameters frozen that the patterns (parameter_patterns.h) name. A tied token table is
// frozen at both ends. Throws Error for a pattern that matches nothing, for one that names a part of a tensor, and when
// nothing is left to train.
std::vector<LayerDecl> declare_layers(const ModelSpec& model, const std::vector<std::string>& frozen);

// In model order, without the tied alias.
std::vector<std::string> frozen_parameters(const std::vector<LayerDecl>& layers);
int64_t count_frozen_parameters(const std::vector<LayerDecl>& layers);

}  // namespace strata

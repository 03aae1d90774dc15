// SPDX-License-Identifier: Apache-2.0
// Which parameters decay: matrices do, vectors (norms and biases) do not, unless patterns in the config say otherwise.
// Pure.
#pragma once

#include <vector>

#include "strata/layers/declaration.h"
#include "strata/spec/train_config.h"

namespace strata {

// optimizer.weight_decay or 0. Patterns match Strata's name or a Hugging Face name of the parameter; `no_decay` wins.
float weight_decay_of(const ParameterDecl& parameter, const OptimizerConfig& optimizer);

struct DecayGroups {
  std::vector<std::string> decay;
  std::vector<std::string> no_decay;
};
// All trained parameters by group, for the log. Throws Error for a pattern that matches no parameter.
DecayGroups decay_groups(const std::vector<LayerDecl>& layers, const OptimizerConfig& optimizer);

}  // namespace strata

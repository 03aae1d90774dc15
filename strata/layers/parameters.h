// SPDX-License-Identifier: Apache-2.0
// The parameter tables of the families: shape, partition, initialisation and Hugging Face name of every tensor. Pure.
#pragma once

#include <vector>

#include "strata/layers/declaration.h"

namespace strata {

std::vector<ParameterDecl> embedding_parameter_table(const ModelSpec& model);
std::vector<ParameterDecl> attention_parameter_table(const ModelSpec& model, int64_t block);
std::vector<ParameterDecl> mlp_parameter_table(const ModelSpec& model, int64_t block);
// With a tied head the last entry has the token table's name and shape and is LayerDecl::tied_parameter.
std::vector<ParameterDecl> head_parameter_table(const ModelSpec& model);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// Patterns (* and ?) of a config over parameters: they match Strata's name or a Hugging Face name. A tied head has the
// name of the token table, which its owner declares. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "strata/layers/declaration.h"

namespace strata {

bool matches_any(const ParameterDecl& parameter, const std::vector<std::string>& patterns);

// Throws Error, with the option `key`, for a pattern that matches no parameter.
void refuse_idle_patterns(const std::vector<LayerDecl>& layers, const std::vector<std::string>& patterns,
                          std::string_view key);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/layers/parameter_patterns.h"

#include <algorithm>

#include "strata/base/error.h"
#include "strata/base/units.h"

namespace strata {
namespace {

bool matches(const ParameterDecl& parameter, const std::string& pattern) {
  if (glob_match(pattern, parameter.name)) return true;
  return std::any_of(parameter.hub.begin(), parameter.hub.end(),
                     [&](const HubPart& part) { return glob_match(pattern, part.name); });
}

// The nearest name, or what names look like.
std::string hint(const std::vector<LayerDecl>& layers, const std::string& pattern) {
  std::vector<std::string> names;
  for (const LayerDecl& layer : layers)
    for (const ParameterDecl& parameter : layer.parameters) {
      names.push_back(parameter.name);
      for (const HubPart& part : parameter.hub) names.push_back(part.name);
    }
  const std::string near = did_you_mean(pattern, names);
  return near.empty() ? fmt::format("; names look like '{}'", layers[1].parameters[0].name) : near;
}

}  // namespace

bool matches_any(const ParameterDecl& parameter, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches(parameter, pattern); });
}

void refuse_idle_patterns(const std::vector<LayerDecl>& layers, const std::vector<std::string>& patterns,
                          std::string_view key) {
  for (const std::string& pattern : patterns) {
    const bool used = std::any_of(layers.begin(), layers.end(), [&](const LayerDecl& layer) {
      return std::any_of(layer.parameters.begin(), layer.parameters.end(),
                         [&](const ParameterDecl& parameter) { return matches(parameter, pattern); });
    });
    if (!used)
      throw_bad_input("{}: pattern '{}' matches none of the model's parameters{}", key, pattern, hint(layers, pattern));
  }
}

}  // namespace strata

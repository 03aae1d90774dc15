// SPDX-License-Identifier: Apache-2.0
#include "strata/optim/decay_groups.h"

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
      throw_bad_input("{}: pattern '{}' matches none of the model's parameters; names look like '{}'", key, pattern,
                      layers[1].parameters[0].name);
  }
}

}  // namespace

float weight_decay_of(const ParameterDecl& parameter, const OptimizerConfig& optimizer) {
  const bool decays = optimizer.decay.empty() ? parameter.matrix : matches_any(parameter, optimizer.decay);
  return decays && !matches_any(parameter, optimizer.no_decay) ? static_cast<float>(optimizer.weight_decay) : 0.0f;
}

DecayGroups decay_groups(const std::vector<LayerDecl>& layers, const OptimizerConfig& optimizer) {
  refuse_idle_patterns(layers, optimizer.decay, "optimizer.decay");
  refuse_idle_patterns(layers, optimizer.no_decay, "optimizer.no_decay");
  DecayGroups groups;
  for (const LayerDecl& layer : layers)
    for (size_t index = 0; index < layer.parameters.size(); ++index) {
      if (static_cast<int>(index) == layer.tied_parameter) continue;
      const ParameterDecl& parameter = layer.parameters[index];
      (weight_decay_of(parameter, optimizer) != 0.0f || (optimizer.weight_decay == 0.0 && parameter.matrix)
           ? groups.decay
           : groups.no_decay)
          .push_back(parameter.name);
    }
  return groups;
}

}  // namespace strata

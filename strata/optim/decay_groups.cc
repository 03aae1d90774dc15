// SPDX-License-Identifier: Apache-2.0
#include "strata/optim/decay_groups.h"

#include "strata/layers/parameter_patterns.h"

namespace strata {
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
      if (parameter.frozen) continue;
      (weight_decay_of(parameter, optimizer) != 0.0f || (optimizer.weight_decay == 0.0 && parameter.matrix)
           ? groups.decay
           : groups.no_decay)
          .push_back(parameter.name);
    }
  return groups;
}

}  // namespace strata

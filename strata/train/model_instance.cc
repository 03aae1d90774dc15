// SPDX-License-Identifier: Apache-2.0
#include "strata/train/model_instance.h"

#include <map>

#include "strata/hf/model_folder.h"

namespace strata {

ModelInstance::ModelInstance(const CompileInput& input, const std::vector<LayerDecl>& layers,
                             const ProgramSet& programs, Comm* comm)
    : input_(input),
      layers_(layers),
      programs_(programs),
      arena_(programs.arena_bytes[static_cast<size_t>(Tier::kDevice)]),
      team_(static_cast<int>(input.plan.threads)),
      executor_(input, layers, programs, {arena_.base(), static_cast<size_t>(arena_.size_bytes())}, team_, comm) {}

void load_weights(const std::string& folder, const StatesInMemory& states) {
  // By name: a tied table is read under its owner's.
  std::map<std::string, std::vector<StatePart>> parts;
  for (const StatePart& part : list_parameter_parts(states))
    parts[declaration_of(part, states.layers).name].push_back(part);
  const auto name_of = [&](int layer, int parameter) { return states.layers[layer].parameters[parameter].name; };
  const auto store = [&](int layer, int parameter, const TensorView& values) {
    for (const StatePart& part : parts.at(name_of(layer, parameter)))
      for (const CommonRun& run : common_runs(part.part, whole_tensor(values.rows, values.cols)))
        store_values(part, run.first, {values.row<float>(0) + run.second, static_cast<size_t>(run.count)});
  };
  read_model_weights(folder, states.input.model, states.layers, store,
                     [&](int layer, int parameter) { return parts.contains(name_of(layer, parameter)); });
}

}  // namespace strata

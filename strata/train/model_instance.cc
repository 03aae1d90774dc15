// SPDX-License-Identifier: Apache-2.0
#include "strata/train/model_instance.h"

#include "strata/hf/model_folder.h"
#include "strata/train/initialize.h"

namespace strata {

ModelInstance::ModelInstance(const CompileInput& input, const std::vector<LayerDecl>& layers,
                             const ProgramSet& programs)
    : arena_(programs.arena_bytes[static_cast<size_t>(Tier::kDevice)]),
      team_(static_cast<int>(input.plan.threads)),
      executor_(input, layers, programs, {arena_.base(), static_cast<size_t>(arena_.size_bytes())}, team_) {}

void load_weights(const std::string& folder, const ModelSpec& model, const std::vector<LayerDecl>& layers,
                  ModelInstance& instance) {
  read_model_weights(folder, model, layers, [&](int layer, int parameter, const TensorView& values) {
    kernels::convert({instance.team(), {}}, values, instance.executor().master(layer, parameter));
  });
  round_parameters(layers, instance.executor(), instance.team());
}

}  // namespace strata

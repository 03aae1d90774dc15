// SPDX-License-Identifier: Apache-2.0
#include "strata/train/model_instance.h"

namespace strata {

ModelInstance::ModelInstance(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& programs)
    : arena_(programs.arena_bytes[static_cast<size_t>(Tier::kDevice)]), team_(static_cast<int>(input.plan.threads)),
      executor_(input, layers, programs, {arena_.base(), static_cast<size_t>(arena_.size_bytes())}, team_) {}

}  // namespace strata

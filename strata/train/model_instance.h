// SPDX-License-Identifier: Apache-2.0
// A compiled model in memory: its arena, its compute team and the executor over both. One rank; several may live in one
// process.
#pragma once

#include "strata/ckpt/states_in_memory.h"
#include "strata/device/arena.h"
#include "strata/exec/executor.h"

namespace strata {

class ModelInstance {
 public:
  // All references must outlive the instance; `comm` is null when there is one rank. Parameters are zero until loaded
  // or initialised. Called by all ranks.
  ModelInstance(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& programs,
                Comm* comm);

  Executor& executor() { return executor_; }
  Team& team() { return team_; }
  std::byte* arena() { return arena_.base(); }
  StatesInMemory states() { return {input_, layers_, programs_, arena()}; }

 private:
  const CompileInput& input_;
  const std::vector<LayerDecl>& layers_;
  const ProgramSet& programs_;
  Arena arena_;
  Team team_;
  Executor executor_;
};

// Fills all parameters (their f32 masters, and the rounded copies of bf16) that the rank holds from a Hugging Face
// folder; strict (read_model_weights). Reads the tensors that the rank has a part of, one at a time.
void load_weights(const std::string& folder, const StatesInMemory& states);

}  // namespace strata

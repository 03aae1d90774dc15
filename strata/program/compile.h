// SPDX-License-Identifier: Apache-2.0
// The compiler: order (schedule.h) -> expand (expand.h) -> place (place.h) -> pack and check (memory.h). Five pure
// functions; this file calls them in turn for every program of a set. Milliseconds; called on every rank with the same
// input but its rank.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strata/layers/optimizer_state.h"
#include "strata/program/program.h"
#include "strata/spec/batch_sheet.h"
#include "strata/spec/token_split.h"

namespace strata {

enum class ProgramKind : uint8_t { kStep, kEvaluation, kSave, kDecode };

struct CompileInput {
  ModelSpec model;
  Plan plan;
  int rank = 0;
  Precision precision = Precision::kF32;
  OptimizerConfig optimizer;
  std::vector<std::string> frozen;  // patterns of parameters that are not trained
  int64_t seq = 0;                  // tokens per sample
  int64_t decode_tokens = 0;        // decode: most tokens per execution
  int64_t decode_cache_tokens = 0;  // decode: capacity of the KV cache
  // Bytes of scratch that one run needs, from the backend's tables; empty: none.
  std::function<int64_t(const LayerDecl& layer, int segment, Direction direction, int64_t tokens)> workspace_bytes;
};

// The most that a rank can have of a micro-batch, in tokens and sequences.
BatchCapacity batch_capacity(const CompileInput& input, const TokenSplit& split);
// Tokens of a micro-batch's tensor in a layer, at capacity.
int64_t tensor_tokens(const CompileInput& input, const Program& program, int layer, const TensorDecl& tensor);

// Throws Error for a plan that does not fit the model. The result has passed check().
ProgramSet compile(const CompileInput& input, const std::vector<ProgramKind>& kinds);

}  // namespace strata

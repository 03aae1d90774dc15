// SPDX-License-Identifier: Apache-2.0
#include "strata/program/compile.h"

#include <algorithm>

#include "strata/base/error.h"
#include "strata/layers/freeze.h"
#include "strata/program/expand.h"
#include "strata/program/memory.h"
#include "strata/spec/context_pieces.h"

namespace strata {
namespace {

bool contains(const std::vector<ProgramKind>& kinds, ProgramKind kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

Program expand(ProgramKind kind, const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
               const std::vector<Booking>& persistent) {
  switch (kind) {
    case ProgramKind::kStep: return expand_step(input, layers, set, persistent);
    case ProgramKind::kEvaluation: return expand_evaluation(input, layers, set, persistent);
    case ProgramKind::kSave: return expand_save(input, layers, set, persistent);
    case ProgramKind::kDecode: return expand_decode(input, layers, set, persistent);
  }
  STRATA_CHECK(false, "program kind {}", static_cast<int>(kind));
  return {};
}

}  // namespace

BatchCapacity batch_capacity(const CompileInput& input, const TokenSplit& split) {
  const int64_t samples = rank_samples(input.plan, split);
  return {samples * largest_context_part(input.seq, split.cp), samples, split.cp};
}

int64_t tensor_tokens(const CompileInput& input, const Program& program, int layer, const TensorDecl& tensor) {
  return tensor.by_heads ? batch_capacity(input, core_split(input.plan.layers[layer])).tokens
                         : program.capacity_tokens[layer];
}

ProgramSet compile(const CompileInput& input, const std::vector<ProgramKind>& kinds) {
  validate_plan(input.plan, input.model);
  const std::vector<LayerDecl> layers = declare_layers(input.model, input.frozen);
  const bool with_optimizer = contains(kinds, ProgramKind::kStep) || contains(kinds, ProgramKind::kSave);
  std::vector<Booking> persistent;
  ProgramSet set = book_states(input, layers, with_optimizer, contains(kinds, ProgramKind::kDecode), persistent);
  for (ProgramKind kind : kinds) {
    Program program = expand(kind, input, layers, set, persistent);
    synchronize(program);
    pack(program);
    check(program);
    for (int tier = 0; tier < kNumTiers; ++tier)
      set.arena_bytes[tier] = std::max(set.arena_bytes[tier], program.arena_bytes[tier]);
    set.programs.push_back(std::move(program));
  }
  return set;
}

}  // namespace strata

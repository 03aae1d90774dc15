// SPDX-License-Identifier: Apache-2.0
#include "strata/program/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/program/chunks.h"
#include "strata/program/memory.h"
#include "strata/program/replay.h"

namespace strata {
namespace {

ModelSpec tiny_model(bool tied) {
  ModelSpec model;
  model.family = "gpt2";
  model.vocab = 97;
  model.hidden = 32;
  model.num_blocks = 2;
  model.heads = model.kv_heads = 4;
  model.head_dim = 8;
  model.ffn = 128;
  model.max_positions = 16;
  model.tied_head = tied;
  return model;
}

CompileInput make_input(const ModelSpec& model, int64_t tp, int64_t pp, int64_t dp, int zero, int64_t accumulation, GradientReduce reduce) {
  CompileInput input;
  input.model = model;
  input.seq = 16;
  input.plan = single_rank_plan(model, ActivationPolicy::kKeep, 2, accumulation, 1);
  input.plan.num_ranks = tp * pp * dp;
  input.plan.reduce = reduce;
  input.plan.stage_layers.assign(pp, num_layers(model) / pp);
  input.plan.stage_layers.back() += num_layers(model) - num_layers(model) / pp * pp;
  for (LayerPlan& layer : input.plan.layers) {
    layer.tp = tp;
    layer.dp = dp;
    layer.zero = zero;
  }
  return input;
}

std::vector<Program> compile_world(CompileInput input, ProgramKind kind) {
  std::vector<Program> programs;
  for (int rank = 0; rank < input.plan.num_ranks; ++rank) {
    input.rank = rank;
    programs.push_back(compile(input, {kind}).programs.front());
  }
  return programs;
}

TEST(Compile, EveryPlanRunsToTheEnd) {
  for (bool tied : {false, true})
    for (int64_t tp : {1, 2})
      for (int64_t pp : {1, 2, 3})
        for (int64_t dp : {1, 2})
          for (int zero : {0, 1, 2, 3})
            for (int64_t accumulation : {1, 3})
              for (GradientReduce reduce : {GradientReduce::kLast, GradientReduce::kEach}) {
                const CompileInput input = make_input(tiny_model(tied), tp, pp, dp, zero, accumulation, reduce);
                for (ProgramKind kind : {ProgramKind::kStep, ProgramKind::kEvaluation, ProgramKind::kSave})
                  EXPECT_THAT(check_world(compile_world(input, kind)), ::testing::IsEmpty())
                      << "tp " << tp << " pp " << pp << " dp " << dp << " zero " << zero << " tied " << tied;
              }
}

// A checkpoint is read after the program has ended, so no two of its bookings may share bytes.
TEST(Compile, SavedBookingsLieApart) {
  const CompileInput input = make_input(tiny_model(true), 1, 1, 1, 0, 1, GradientReduce::kLast);
  const Program save = compile(input, {ProgramKind::kSave}).programs.front();
  int64_t bytes = 0;
  for (const Booking& booking : save.bookings)
    if (booking.tier == Tier::kDisk) bytes += (booking.bytes + 63) / 64 * 64;
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(save.arena_bytes[static_cast<size_t>(Tier::kDisk)], bytes);
}

}  // namespace
}  // namespace strata

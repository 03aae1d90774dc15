// SPDX-License-Identifier: Apache-2.0
// Embedding and head over tensor-parallel ranks that have unequal parts of the vocabulary. Training is in
// plan_invariance_test.cc; here: evaluation, generation and memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "strata/model/segment.h"
#include "strata/train/initialize.h"
#include "tests/model_harness.h"

namespace strata::testing {
namespace {

Plan split_plan(const ModelSpec& model, int64_t tp, int64_t head_tile) {
  Plan plan = single_rank_plan(model, ActivationPolicy::kKeep, 2, 1, 1);
  for (LayerPlan& layer : plan.layers) layer.tp = tp;
  plan.num_ranks = tp;
  plan.head_tile = head_tile;
  return plan;
}

// The sum over ranks counts every token's loss once. Sums over the vocabulary and over channels are split: a few 2^-24
// of losses of about 4, relative.
TEST(Vocabulary, EvaluationCountsTheLossOnce) {
  HarnessOptions options;
  options.model = tiny_gpt2();
  options.micro_batch = 2;
  const std::vector<Document> documents = make_documents(2, 13, 97, 5);
  ModelHarness one(options);
  one.fill(documents);
  const double wanted = one.evaluate();
  std::vector<double> losses(4);
  run_ranks(4, [&](int rank, Comm& comm) {
    ModelHarness harness(options, split_plan(options.model, 4, 5), comm);
    harness.fill(documents);
    losses[static_cast<size_t>(rank)] = harness.evaluate();
  });
  EXPECT_NEAR(losses[0] / wanted, 1, 1e-6);
  EXPECT_EQ(std::count(losses.begin() + 1, losses.end(), 0.0), 3);
}

// Of one prompt, as generation computes them.
std::vector<float> next_logits(const ModelSpec& model, const Plan& plan, Comm* comm) {
  const std::vector<LayerDecl> layers = declare_layers(model);
  CompileInput input;
  input.model = model;
  input.plan = plan;
  input.rank = comm == nullptr ? 0 : comm->rank();
  input.decode_tokens = input.decode_cache_tokens = 16;
  input.workspace_bytes = [&](const LayerDecl& layer, int segment, Direction direction, int64_t tokens) {
    return segment_workspace_bytes(model, plan, layer, segment, direction, {DType::kF32, tokens, 16});
  };
  const ProgramSet programs = compile(input, {ProgramKind::kDecode});
  ModelInstance instance(input, layers, programs, comm);
  initialize_parameters(instance.states(), 7, instance.team());
  BatchSheet sheet;
  sheet.micro_batches.push_back(instance.executor().decode_storage().resize(9, 1));
  MicroBatch& batch = sheet.micro_batches.front();
  for (int32_t index = 0; index < 9; ++index) {
    batch.ids[index] = index * 11;
    batch.targets[index] = -1;
    batch.positions[index] = index;
    batch.token_indices[index] = index;
  }
  batch.offsets[1] = 9;
  instance.executor().scalars().training = false;
  const Program& decode = programs.programs.front();
  instance.executor().run(decode, sheet);
  for (const Instruction& instruction : decode.instructions)
    for (const Use& use : instruction.uses)
      if (instruction.op == Op::kRun && instruction.layer + 1 == static_cast<int>(layers.size()) &&
          use.role == Role::kTensor && use.index == head_tensor::kLogits) {
        const auto* logits = reinterpret_cast<const float*>(instance.executor().booking_data(decode, use.booking));
        return {logits, logits + model.vocab};
      }
  return {};
}

TEST(Vocabulary, EveryRankHasAllLogitsOfGeneration) {
  const ModelSpec model = tiny_gpt2();
  const std::vector<float> wanted = next_logits(model, split_plan(model, 1, 0), nullptr);
  std::vector<std::vector<float>> found(4);
  run_ranks(4, [&](int rank, Comm& comm) {
    found[static_cast<size_t>(rank)] = next_logits(model, split_plan(model, 4, 0), &comm);
  });
  ASSERT_EQ(wanted.size(), 97u);
  for (const std::vector<float>& logits : found) {
    EXPECT_EQ(logits, found[0]);
    EXPECT_LT(relative_difference(logits, wanted), 1e-5);  // partial sums of two blocks, a few 2^-24 each
  }
}

// Parameters, gradient and AdamW's states of a tied table: 16 bytes per element of this rank's rows.
TEST(Vocabulary, MemoryOfTheTableFallsWithTheRanks) {
  ModelSpec model = tiny_gpt2();
  model.vocab = 4096;
  for (const int64_t tp : {1, 2, 4}) {
    CompileInput input;
    input.model = model;
    input.plan = split_plan(model, tp, 8);
    input.seq = 16;
    const ProgramSet set = compile(input, {ProgramKind::kStep});
    int64_t bytes = 0;
    for (const Booking& booking : set.programs.front().bookings)
      if (booking.name.starts_with("embedding.tied.")) bytes += booking.bytes;
    EXPECT_EQ(bytes, 16 * 4096 * model.hidden / tp);
  }
}

}  // namespace
}  // namespace strata::testing

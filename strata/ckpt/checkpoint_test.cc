// SPDX-License-Identifier: Apache-2.0
// What is read is what was written, in either precision, and only from a checkpoint of the same model and optimizer.
#include "strata/ckpt/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/base/testing.h"
#include "strata/ckpt/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ModelSpec tiny_llama() { return llama_shaped(tiny_gpt2(), 2, 88); }

int parameters_of(const TinyRun& run, size_t chunk) { return run.set.parameter_booking[chunk]; }
auto state_of(std::string_view name) {
  return [name](const TinyRun& run, size_t chunk) {
    return run.set.state_booking[chunk].at(
        static_cast<size_t>(state_index(optimizer_states(run.input.optimizer, run.input.precision), name)));
  };
}

bool equal_runs(const TinyRun& a, const TinyRun& b) {
  for (std::string_view state : optimizer_states(a.input.optimizer, a.input.precision))
    if (!equal_tensors(a, b, 4, state_of(state))) return false;
  return equal_tensors(a, b, a.input.precision == Precision::kF32 ? 4 : 2, parameters_of);
}

TrainerState example_trainer() { return {70, 68, 2, 2240, 35840, 3e-4, "bytes", "fingerprint", "[run]\nseed = 7\n"}; }

CheckpointInfo write_and_open(const std::string& folder, const TinyRun& run) {
  write_checkpoint(folder, example_trainer(), run.states(), [&](DiskFile& file) { run.save(file); });
  return open_checkpoint(checkpoint_path(folder, 70));
}

TEST(Checkpoint, RoundTripIsBitEqual) {
  for (const ModelSpec& model : {tiny_gpt2(), tiny_llama()})
    for (Precision precision : {Precision::kF32, Precision::kBF16})
      for (OptimizerKind optimizer : {OptimizerKind::kAdamW, OptimizerKind::kSgd})
        for (double momentum : {0.0, 0.9}) {
          TemporaryFolder folder;
          CompileInput input = compile_input(model, precision, optimizer);
          input.optimizer.momentum = momentum;
          TinyRun saved(input);
          saved.fill(1);
          const CheckpointInfo checkpoint = write_and_open(folder.path(), saved);
          TinyRun loaded(input);
          loaded.fill(2);
          ASSERT_FALSE(equal_runs(saved, loaded));
          EXPECT_EQ(read_checkpoint(checkpoint, loaded.states()), example_trainer());
          EXPECT_TRUE(equal_runs(saved, loaded));
          EXPECT_EQ(checkpoint.model, model);
        }
}

TEST(Checkpoint, BelongsToNoPlan) {
  TemporaryFolder folder;
  TinyRun saved(compile_input(tiny_gpt2(), Precision::kF32));
  saved.fill(1);
  const CheckpointInfo checkpoint = write_and_open(folder.path(), saved);
  CompileInput input = compile_input(tiny_gpt2(), Precision::kF32);
  input.plan = single_rank_plan(input.model, ActivationPolicy::kFull, 1, 4, 2);
  for (LayerPlan& layer : input.plan.layers) layer.zero = 3;
  TinyRun loaded(input);
  read_checkpoint(checkpoint, loaded.states());
  EXPECT_TRUE(equal_runs(saved, loaded));
}

// As if several ranks had each written a part of every tensor.
TEST(Checkpoint, TensorsMayComeInParts) {
  TemporaryFolder folder;
  TinyRun saved(compile_input(tiny_gpt2(), Precision::kBF16));
  saved.fill(1);
  CheckpointInfo checkpoint = write_and_open(folder.path(), saved);
  std::vector<SavedPart> halves;
  for (const SavedPart& part : checkpoint.parts) {
    SavedPart first = part, second = part;
    first.part.count = part.part.count / 3;
    second.part.begin = first.part.count;
    second.part.count = part.part.count - first.part.count;
    second.offset += first.bytes();
    halves.push_back(second);
    halves.push_back(first);
  }
  checkpoint.parts = halves;
  TinyRun loaded(compile_input(tiny_gpt2(), Precision::kBF16));
  read_checkpoint(checkpoint, loaded.states());
  EXPECT_TRUE(equal_runs(saved, loaded));
  checkpoint.parts.pop_back();
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { read_checkpoint(checkpoint, loaded.states()); }),
              HasSubstr("elements of "));
}

TEST(Checkpoint, F32ResumesInBf16) {
  TemporaryFolder folder;
  TinyRun saved(compile_input(tiny_gpt2(), Precision::kF32));
  saved.fill(1);
  TinyRun loaded(compile_input(tiny_gpt2(), Precision::kBF16));
  read_checkpoint(write_and_open(folder.path(), saved), loaded.states());
  const auto f32_of_either = [](const TinyRun& run, size_t chunk) {
    return run.input.precision == Precision::kF32 ? run.set.parameter_booking[chunk] : run.set.state_booking[chunk][0];
  };
  EXPECT_TRUE(equal_tensors(saved, loaded, 4, f32_of_either));
  EXPECT_TRUE(equal_tensors(saved, loaded, 4, state_of("exp_avg")));
  EXPECT_TRUE(equal_tensors(saved, loaded, 4, state_of("exp_avg_sq")));
  const Chunk& chunk = loaded.set.chunks[0];
  for (int64_t index = 0; index < chunk.tensors[0].num_elements(); ++index)
    ASSERT_EQ(loaded.contents<BF16>(loaded.set.parameter_booking[0])[index].bits,
              to_bf16(saved.contents<float>(saved.set.parameter_booking[0])[index]).bits);
}

TEST(Checkpoint, Bf16ResumesInF32) {
  TemporaryFolder folder;
  TinyRun saved(compile_input(tiny_gpt2(), Precision::kBF16));
  saved.fill(1);
  TinyRun loaded(compile_input(tiny_gpt2(), Precision::kF32));
  read_checkpoint(write_and_open(folder.path(), saved), loaded.states());
  const auto f32_of_either = [](const TinyRun& run, size_t chunk) {
    return run.input.precision == Precision::kF32 ? run.set.parameter_booking[chunk] : run.set.state_booking[chunk][0];
  };
  EXPECT_TRUE(equal_tensors(saved, loaded, 4, f32_of_either));
  EXPECT_TRUE(equal_tensors(saved, loaded, 4, state_of("exp_avg_sq")));
}

TEST(Checkpoint, EvaluationTakesTheParametersAlone) {
  for (Precision precision : {Precision::kF32, Precision::kBF16}) {
    TemporaryFolder folder;
    TinyRun saved(compile_input(tiny_gpt2(), precision));
    saved.fill(1);
    TinyRun loaded(compile_input(tiny_gpt2(), precision), {ProgramKind::kEvaluation});
    read_checkpoint(write_and_open(folder.path(), saved), loaded.states());
    EXPECT_TRUE(equal_tensors(saved, loaded, precision == Precision::kF32 ? 4 : 2, parameters_of));
  }
}

// What read_checkpoint says to a run of `input`; nothing in its memory has changed.
std::string refusal(const CheckpointInfo& checkpoint, const CompileInput& input) {
  TinyRun run(input), before(input);
  run.fill(3);
  before.fill(3);
  const std::string message = error_message(ErrorKind::kBadInput, [&] { read_checkpoint(checkpoint, run.states()); });
  EXPECT_TRUE(equal_runs(run, before));
  return message;
}

TEST(Checkpoint, OfAnotherModelIsRefused) {
  TemporaryFolder folder;
  TinyRun saved(compile_input(tiny_gpt2(), Precision::kF32));
  const CheckpointInfo checkpoint = write_and_open(folder.path(), saved);
  ModelSpec model = tiny_gpt2();
  model.vocab = 98;
  EXPECT_THAT(refusal(checkpoint, compile_input(model, Precision::kF32)),
              AllOf(HasSubstr("embedding.token.weight (97 x 32 in the checkpoint, 98 x 32 in the run)"),
                    Not(HasSubstr("missing"))));
  model = tiny_gpt2();
  model.num_blocks = 3;
  EXPECT_THAT(refusal(checkpoint, compile_input(model, Precision::kF32)),
              AllOf(HasSubstr("missing: "), HasSubstr("attention.2."), HasSubstr(" more")));
  model.num_blocks = 1;
  EXPECT_THAT(refusal(checkpoint, compile_input(model, Precision::kF32)),
              AllOf(HasSubstr("not expected: "), HasSubstr("attention.1.")));
  model = tiny_gpt2();
  model.heads = model.kv_heads = 2;
  model.head_dim = 16;
  EXPECT_THAT(refusal(checkpoint, compile_input(model, Precision::kF32)),
              HasSubstr("n_head (4 in the checkpoint, 2 in the run)"));
}

TEST(Checkpoint, OfAnotherOptimizerIsRefused) {
  TemporaryFolder folder;
  TinyRun saved(compile_input(tiny_gpt2(), Precision::kF32));
  const CheckpointInfo checkpoint = write_and_open(folder.path(), saved);
  CompileInput sgd = compile_input(tiny_gpt2(), Precision::kF32, OptimizerKind::kSgd);
  EXPECT_THAT(refusal(checkpoint, sgd), HasSubstr("not expected: exp_avg of attention.0."));
  sgd.optimizer.momentum = 0.9;
  EXPECT_THAT(refusal(checkpoint, sgd), HasSubstr("missing: momentum of embedding.token.weight"));
}

TEST(Checkpoint, DropoutAndInitialisationMayChange) {
  TemporaryFolder folder;
  TinyRun saved(compile_input(tiny_gpt2(), Precision::kF32));
  const CheckpointInfo checkpoint = write_and_open(folder.path(), saved);
  ModelSpec model = tiny_gpt2();
  model.residual_dropout = 0.1f;
  model.init_std = 0.01f;
  TinyRun loaded(compile_input(model, Precision::kF32));
  EXPECT_EQ(read_checkpoint(checkpoint, loaded.states()).step, 70);
}

}  // namespace
}  // namespace strata

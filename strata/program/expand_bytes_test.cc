// SPDX-License-Identifier: Apache-2.0
// What programs of models small enough to count by hand hold in memory: states against ZeRO's formulas, gradients,
// gathered weights, and activations under every policy.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/program/memory.h"
#include "strata/program/testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct StateBytes {
  double parameter, gradient, optimizer;  // per parameter
};

// ZeRO, figure 1: what a rank of N holds. The paper's mixed precision is {2, 2, 12}; with gradients in f32, f32 storage
// is {4, 4, 8} and bf16 storage {2, 4, 12} (AdamW).
double state_bytes(const StateBytes& bytes, int zero, double ranks, double elements) {
  return elements * (bytes.parameter / (zero >= 3 ? ranks : 1) + bytes.gradient / (zero >= 2 ? ranks : 1) +
                     bytes.optimizer / (zero >= 1 ? ranks : 1));
}

// Table 1, in units of 1e9 bytes: the paper rounds to three digits or cuts to an integer.
TEST(ZeroFormula, GivesTable1) {
  constexpr double kRanks[] = {1, 4, 16, 64, 256, 1024};
  constexpr double kParameters[] = {7.5, 128, 1000};
  constexpr double kPrinted[3][6][3] = {
      {{120, 120, 120},
       {52.5, 41.3, 30},
       {35.6, 21.6, 7.5},
       {31.4, 16.6, 1.88},
       {30.4, 15.4, 0.47},
       {30.1, 15.1, 0.12}},
      {{2048, 2048, 2048}, {896, 704, 512}, {608, 368, 128}, {536, 284, 32}, {518, 263, 8}, {513, 257, 2}},
      {{16000, 16000, 16000},
       {7000, 5500, 4000},
       {4750, 2875, 1000},
       {4187, 2218, 250},
       {4046, 2054, 62.5},
       {4011, 2013, 15.6}}};
  for (int model = 0; model < 3; ++model)
    for (int row = 0; row < 6; ++row)
      for (int zero : {1, 2, 3}) {
        const double printed = kPrinted[model][row][zero - 1];
        EXPECT_NEAR(state_bytes({2, 2, 12}, zero, kRanks[row], kParameters[model]), printed,
                    model > 0 && printed > 100 ? 1
                    : printed < 10             ? 0.005
                                               : 0.051)
            << kParameters[model] << "e9 parameters over " << kRanks[row] << " ranks, ZeRO " << zero;
      }
}

bool is_alive(const Program& program, int booking, int at) {
  if (program.bookings[static_cast<size_t>(booking)].persistent) return true;
  bool before = false, after = false;
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index)
    for (const Use& use : program.instructions[static_cast<size_t>(index)].uses) {
      before |= use.booking == booking && index <= at;
      after |= use.booking == booking && index >= at;
    }
  return before && after;
}

int64_t bytes_alive(const Program& program, BookingKind kind, int at) {
  int64_t sum = 0;
  for (int index = 0; index < static_cast<int>(program.bookings.size()); ++index) {
    const Booking& booking = program.bookings[static_cast<size_t>(index)];
    if (booking.kind == kind && is_alive(program, index, at)) sum += booking.bytes;
  }
  return sum;
}

bool is_finish_norm(const Instruction& instruction) {
  return instruction.op == Op::kScalar && instruction.scalar == ScalarOp::kFinishNorm;
}

// Before the first update all reduced gradients are there: the model state of the formula, exactly, on every rank.
TEST(Expand, ModelStateBytesAreThoseOfZero) {
  for (Precision precision : {Precision::kF32, Precision::kBF16})
    for (int zero : {0, 1, 2, 3})
      for (int64_t accumulation : {1, 3}) {
        CompileInput input = tiny_input(tiny_gpt2(2, false), {1, 1, 4, zero}, accumulation);
        input.precision = precision;
        for (const ProgramSet& set : compile_world(input, {ProgramKind::kStep})) {
          const Program& program = set.programs.front();
          const int at = find_instruction(program, is_finish_norm);
          int64_t bytes = 0;
          for (BookingKind kind : {BookingKind::kParameter, BookingKind::kOptimizer, BookingKind::kGradient})
            bytes += bytes_alive(program, kind, at);
          // A gradient lives to its update; the first update is after `at`, and every chunk has one.
          const StateBytes each = precision == Precision::kF32 ? StateBytes{4, 4, 8} : StateBytes{2, 4, 12};
          EXPECT_EQ(static_cast<double>(bytes), state_bytes(each, zero, 4, static_cast<double>(padded_elements(set))))
              << "zero " << zero << " rank " << set.rank;
        }
      }
}

int64_t most_alive(const Program& program, BookingKind kind) {
  int64_t most = 0;
  for (int at = 0; at < static_cast<int>(program.instructions.size()); ++at)
    most = std::max(most, bytes_alive(program, kind, at));
  return most;
}

// `last` keeps whole gradients of all chunks until the last micro-batch; `each` keeps shards and one whole chunk.
TEST(Expand, GradientBytesOfLastAndEach) {
  CompileInput input = tiny_input(tiny_gpt2(2, false), {1, 1, 4, 2}, 3);
  const ProgramSet last = step_of(input);
  input.plan.reduce = GradientReduce::kEach;
  const ProgramSet each = step_of(input);
  const int64_t psi = padded_elements(last);
  int64_t largest = 0;
  for (const Chunk& chunk : last.chunks) largest = std::max(largest, chunk.elements);
  EXPECT_GE(most_alive(last.programs.front(), BookingKind::kGradient), 4 * psi);
  EXPECT_LE(most_alive(each.programs.front(), BookingKind::kGradient), 4 * (psi / 4 + largest));
}

// One layer is gathered while the one before it runs: never more than the two largest neighbours.
TEST(Expand, GatheredBytesAreTwoLayers) {
  const ProgramSet set = step_of(tiny_input(tiny_gpt2(4, false), {1, 1, 2, 3}, 2));
  int64_t two_largest = 0;
  for (size_t index = 0; index + 1 < set.chunks.size(); ++index)
    two_largest = std::max(two_largest, set.chunks[index].elements + set.chunks[index + 1].elements);
  EXPECT_EQ(most_alive(set.programs.front(), BookingKind::kGathered), 4 * two_largest);
}

std::string run_name(const Instruction& instruction, const std::vector<LayerDecl>& layers) {
  const LayerDecl& layer = layers[static_cast<size_t>(instruction.layer)];
  std::string text = fmt::format("{}.{} {}", layer.name, layer.segments[static_cast<size_t>(instruction.segment)].name,
                                 direction_name(instruction.direction));
  if (instruction.recomputed >= 0)
    text += fmt::format(" {}", layer.tensors[static_cast<size_t>(instruction.recomputed)].name);
  return text;
}

bool is_head_backward(const Instruction& instruction) {
  return instruction.op == Op::kRun && instruction.direction == Direction::kBackward;
}

// Forward runs and recomputations after the head.
std::vector<std::string> repeated_runs(ActivationPolicy policy) {
  CompileInput input = tiny_input(tiny_gpt2(1, false), {}, 1);
  set_activations(input, policy);
  const Program program = step_of(input).programs.front();
  const std::vector<LayerDecl> layers = declare_layers(input.model);
  std::vector<std::string> runs;
  for (size_t index = static_cast<size_t>(find_instruction(program, is_head_backward));
       index < program.instructions.size(); ++index) {
    const Instruction& instruction = program.instructions[index];
    if (instruction.op == Op::kRun &&
        (instruction.direction == Direction::kForward || instruction.direction == Direction::kRecompute))
      runs.push_back(run_name(instruction, layers));
  }
  return runs;
}

TEST(Expand, RecomputesWhatThePolicyDropped) {
  EXPECT_THAT(repeated_runs(ActivationPolicy::kKeep), IsEmpty());
  EXPECT_THAT(repeated_runs(ActivationPolicy::kSelective),
              ElementsAre("mlp.0.up recompute act", "mlp.0.up recompute normed", "attention.0.qkv recompute normed"));
  EXPECT_THAT(repeated_runs(ActivationPolicy::kFull),
              ElementsAre("mlp.0.up forward", "attention.0.qkv forward", "attention.0.core forward"));
}

// While the head runs, in channels of 32 tokens x 4 bytes:
//   attention: x 32, stats 2, normed 32, qkv 96, attended 32, lse 4        = 198
//   mlp:       x 32, stats 2, normed 32, pre 128, act 128                  = 322
//   head:      x 32, stats 2, normed 32, dnormed 32, dx 32                 = 130
// selective drops both normed and act (192); full keeps the two inputs only.
TEST(Expand, ActivationBytesOfEveryPolicy) {
  const auto channels = [](ActivationPolicy policy) {
    CompileInput input = tiny_input(tiny_gpt2(1, false), {}, 1);
    set_activations(input, policy);
    const Program program = step_of(input).programs.front();
    return bytes_alive(program, BookingKind::kActivation, find_instruction(program, is_head_backward)) / (32 * 4);
  };
  EXPECT_EQ(channels(ActivationPolicy::kKeep), 198 + 322 + 130);
  EXPECT_EQ(channels(ActivationPolicy::kSelective), 198 + 322 + 130 - 192);
  EXPECT_EQ(channels(ActivationPolicy::kFull), 32 + 32 + 130);
}

// On two tensor-parallel ranks qkv, attended, lse, pre and act have half their channels. The inputs of attention and
// MLP are halved by the policy, under sequence parallelism also the head's, which holds the whole beside it; there
// normed is computed again whatever the policy. The head's loss sees x, stats, normed, dnormed, 48 of 97 logits and 3
// statistics of each rank.
TEST(Expand, ActivationBytesOfParts) {
  const auto channels = [](ActivationPolicy policy, bool sequence_parallel) {
    CompileInput input = tiny_input(tiny_gpt2(1, false), {2, 1, 1, 0}, 1);
    set_activations(input, policy);
    input.plan.sequence_parallel = sequence_parallel;
    const Program program = step_of(input).programs.front();
    return bytes_alive(program, BookingKind::kActivation, find_instruction(program, is_head_backward)) / (32 * 4);
  };
  constexpr int64_t kHead = 32 + 2 + 32 + 32 + 48 + 6;
  EXPECT_EQ(channels(ActivationPolicy::kFull, false), 32 + 32 + kHead);
  EXPECT_EQ(channels(ActivationPolicy::kPartitioned, false), 16 + 16 + kHead);
  EXPECT_EQ(channels(ActivationPolicy::kFull, true), 16 + 16 + kHead);
  EXPECT_EQ(channels(ActivationPolicy::kPartitioned, true), 16 + 16 + kHead);
  EXPECT_EQ(channels(ActivationPolicy::kKeep, true), (16 + 2 + 48 + 16 + 2) + (16 + 2 + 64 + 64) + kHead);
}

// Over two stages of one block each, the first holds two micro-batches at its fullest: twice the kept tensors.
TEST(Expand, ActivationsOfMicroBatchesInFlight) {
  const auto kept_sets = [](int64_t accumulation) {
    const Program program = step_of(tiny_input(tiny_gpt2(1, false), {1, 2, 1, 0}, accumulation)).programs.front();
    const auto is_first_backward = [](const Instruction& instruction) {
      return instruction.op == Op::kRun && instruction.direction == Direction::kBackwardInput;
    };
    int alive = 0;
    for (int index = 0; index < static_cast<int>(program.bookings.size()); ++index)
      alive += program.bookings[static_cast<size_t>(index)].name.starts_with("attention.0.qkv.mb") &&
               is_alive(program, index, find_instruction(program, is_first_backward));
    return alive;
  };
  EXPECT_EQ(kept_sets(1), 1);
  EXPECT_EQ(kept_sets(2), 2);
  EXPECT_EQ(kept_sets(6), 2);
}

TEST(Expand, WorkspaceIsBookedPerRun) {
  CompileInput input = tiny_input(tiny_gpt2(1, false), {}, 1);
  input.workspace_bytes = [](const LayerDecl& layer, int segment, Direction direction, int64_t tokens) {
    return layer.kind == LayerKind::kMlp && segment == mlp_segment::kUp && direction == Direction::kForward
               ? 10 * tokens
               : int64_t{0};
  };
  const ProgramSet set = step_of(input);
  EXPECT_EQ(most_alive(set.programs.front(), BookingKind::kWorkspace), 10 * 32);
}

}  // namespace
}  // namespace strata

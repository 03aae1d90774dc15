// SPDX-License-Identifier: Apache-2.0
// Programs with frozen tensors: what is not there, and that the rest still runs to the end on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/layers/freeze.h"
#include "strata/program/memory.h"
#include "strata/program/replay.h"
#include "strata/program/testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

int64_t bytes_of(const Program& program, BookingKind kind) {
  int64_t bytes = 0;
  for (const Booking& booking : program.bookings) bytes += booking.kind == kind ? booking.bytes : 0;
  return bytes;
}

int64_t count(const Program& program, Op op, Direction direction = Direction::kForward) {
  return std::ranges::count_if(program.instructions, [&](const Instruction& instruction) {
    return instruction.op == op && (op != Op::kRun || instruction.direction == direction);
  });
}

// Every tensor here is a multiple of 32 elements, so that no chunk is padded.
TEST(FrozenProgram, LacksExactlyTheStatesOfFrozenTensors) {
  for (Precision precision : {Precision::kF32, Precision::kBF16}) {
    CompileInput input = tiny_input(tiny_gpt2(2, false), {}, 1);
    input.precision = precision;
    const Program whole = compile_programs(input, ProgramKind::kStep)[0];
    input.frozen = {"mlp.*", "attention.1.norm.*"};
    const int64_t elements = count_frozen_parameters(declare_layers(input.model, input.frozen));
    const Program frozen = compile_programs(input, ProgramKind::kStep)[0];
    EXPECT_EQ(bytes_of(frozen, BookingKind::kParameter), bytes_of(whole, BookingKind::kParameter));
    EXPECT_EQ(bytes_of(whole, BookingKind::kGradient) - bytes_of(frozen, BookingKind::kGradient), 4 * elements);
    const int64_t states = precision == Precision::kF32 ? 2 : 3;
    EXPECT_EQ(bytes_of(whole, BookingKind::kOptimizer) - bytes_of(frozen, BookingKind::kOptimizer),
              4 * states * elements);
    EXPECT_LT(ledger(frozen, Tier::kDevice).arena_bytes, ledger(whole, Tier::kDevice).arena_bytes);
  }
}

TEST(FrozenProgram, AChunkIsOfOneClass) {
  CompileInput input = tiny_input(tiny_gpt2(1, true), {2, 1, 2, 3}, 1);
  input.frozen = {"attention.0.*bias", "attention.0.norm.weight", "embedding.*"};
  const ProgramSet set = compile(input, {ProgramKind::kStep});
  std::vector<std::string> names;
  for (size_t index = 0; index < set.chunks.size(); ++index) {
    const Chunk& chunk = set.chunks[index];
    names.push_back(chunk.name);
    EXPECT_EQ(chunk.trainable, !chunk.name.ends_with(".frozen")) << chunk.name;
    EXPECT_EQ(set.state_booking[index].empty(), !chunk.trainable) << chunk.name;
  }
  EXPECT_THAT(names, ElementsAre("embedding.tied.frozen", "embedding.frozen", "attention.0", "attention.0.frozen",
                                 "attention.0.replicated.frozen", "mlp.0", "mlp.0.replicated", "head.replicated"));
}

// All layers of the first of two stages: no gradient comes to it, it updates nothing, and keeps no activation for
// backward. B72.
TEST(FrozenProgram, AStageWithoutTrainedTensorsHasNoBackward) {
  CompileInput input = tiny_input(tiny_gpt2(2, false), {1, 2, 1, 0}, 4);
  const int64_t before = ledger(compile_programs(input, ProgramKind::kStep)[0], Tier::kDevice).live_bytes;
  input.frozen = {"embedding.*", "attention.0.*", "mlp.0.*"};
  const std::vector<Program> programs = compile_programs(input, ProgramKind::kStep);
  EXPECT_THAT(check_world(programs), IsEmpty());
  EXPECT_EQ(count(programs[0], Op::kRun, Direction::kBackwardInput), 0);
  EXPECT_EQ(count(programs[0], Op::kRun, Direction::kBackwardWeight), 0);
  EXPECT_EQ(count(programs[0], Op::kUpdate), 0);
  EXPECT_EQ(count(programs[0], Op::kRecv), 0);
  EXPECT_EQ(count(programs[0], Op::kSend), 4);
  EXPECT_EQ(count(programs[1], Op::kSend), 0);
  EXPECT_GT(count(programs[1], Op::kUpdate), 0);
  EXPECT_LT(ledger(programs[0], Tier::kDevice).live_bytes, before / 2);
}

// Trained tensors at one end only, in every order and at every ZeRO stage; a tied table on two stages.
TEST(FrozenProgram, EveryOrderRunsToTheEnd) {
  const std::vector<std::vector<std::string>> patterns = {
      {"embedding.*", "attention.*", "mlp.*"}, {"attention.*", "mlp.*", "head.*"}, {"*.weight"}, {"embedding.token.*"}};
  for (PipelineOrder order : kAllOrders)
    for (int zero : {0, 1, 3}) {
      const PipelineShape shape{order, 2, 4};
      const int64_t virtual_stages = is_valid(shape, 1) ? 1 : 2;
      CompileInput input = pipeline_input(shape, virtual_stages, 2, zero);
      for (const std::vector<std::string>& frozen : patterns) {
        input.frozen = frozen;
        EXPECT_THAT(check_world(compile_programs(input, ProgramKind::kStep)), IsEmpty())
            << order_name(order) << " ZeRO " << zero << " frozen " << frozen[0];
      }
    }
}

// The core split over context ranks goes backward where anything at or below it is trained.
TEST(FrozenProgram, SplitCoresRunToTheEnd) {
  CompileInput input = tiny_input(tiny_gpt2(2, false), {.cp = 2}, 1);
  input.frozen = {"embedding.*", "attention.*", "mlp.1.*"};
  const std::vector<Program> programs = compile_programs(input, ProgramKind::kStep);
  EXPECT_THAT(check_world(programs), IsEmpty());
  const auto rotations = std::ranges::count_if(programs[0].instructions, [](const Instruction& instruction) {
    return instruction.op == Op::kCollective && instruction.collective == CollectiveKind::kRotate;
  });
  EXPECT_EQ(rotations, 1 + 1 + 3);  // both cores forward, the one above the trained layer backward
}

TEST(FrozenProgram, SavesParametersAlone) {
  for (Precision precision : {Precision::kF32, Precision::kBF16}) {
    CompileInput input = tiny_input(tiny_gpt2(1, false), {}, 1);
    input.precision = precision;
    input.frozen = {"mlp.*"};
    const ProgramSet set = compile(input, {ProgramKind::kSave});
    for (size_t index = 0; index < set.chunks.size(); ++index) {
      const int64_t copies = std::ranges::count_if(
          set.programs[0].instructions, [&](const Instruction& copy) { return copy.chunk == static_cast<int>(index); });
      EXPECT_EQ(copies, set.chunks[index].trainable ? 3 : 1) << set.chunks[index].name;
    }
  }
}

}  // namespace
}  // namespace strata

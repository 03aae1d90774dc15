// SPDX-License-Identifier: Apache-2.0
#include "strata/program/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "strata/program/testing.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The programs as if every rank had one queue: instructions strictly in list order.
std::vector<Program> in_list_order(std::vector<Program> programs) {
  for (Program& program : programs)
    for (Instruction& instruction : program.instructions) {
      instruction.queue = Queue::kCompute;
      instruction.waits.clear();
    }
  return programs;
}

// Waits point backwards in the list. If the lists of all ranks run to the end one instruction at a time, no set of
// waits can stop them, whatever bytes packing lets bookings share.
TEST(Replay, ListsRunToTheEndWithoutOverlap) {
  for (int64_t pp : {1, 2, 3, 4})
    for (int64_t accumulation : {1, 2, 3, 6})
      for (int zero : {0, 3}) {
        const CompileInput input = tiny_input(tiny_gpt2(3, true), {2, pp, 2, zero}, accumulation);
        for (ProgramKind kind : {ProgramKind::kStep, ProgramKind::kEvaluation})
          EXPECT_THAT(check_world(in_list_order(compile_programs(input, kind))), IsEmpty())
              << "pp " << pp << " accumulation " << accumulation << " zero " << zero;
      }
}

int queue_index(const Program& program, Queue queue, int position) {
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index)
    if (program.instructions[static_cast<size_t>(index)].queue == queue && position-- == 0) return index;
  return -1;
}

Instruction& on_queue(Program& program, Queue queue, int position) {
  return program.instructions[static_cast<size_t>(queue_index(program, queue, position))];
}

std::vector<Program> two_stages() {
  return compile_programs(tiny_input(tiny_gpt2(2, false), {1, 2, 1, 0}, 3), ProgramKind::kStep);
}

TEST(Replay, NamesTheInstructionOfADeadlock) {
  std::vector<Program> programs = two_stages();
  on_queue(programs[0], Queue::kForwardPipe, 1).op = Op::kRecv;
  EXPECT_THAT(check_world(programs),
              ::testing::IsSupersetOf({HasSubstr("rank 0 forward-pipe queue: instruction 1 (recv) never starts"),
                                       HasSubstr("rank 1 forward-pipe queue: instruction 1 (recv) never starts")}));
}

TEST(Replay, FindsMessagesInAnotherOrder) {
  std::vector<Program> programs = two_stages();
  std::swap(on_queue(programs[0], Queue::kForwardPipe, 0).micro_batch,
            on_queue(programs[0], Queue::kForwardPipe, 1).micro_batch);
  EXPECT_THAT(check_world(programs),
              ::testing::Contains(HasSubstr("rank 1 forward-pipe queue: instruction 0 (recv) never starts")));
}

// Virtual stages: messages of one micro-batch between the same ranks, each of another layer.
TEST(Replay, FindsMessagesOfAnotherLayer) {
  std::vector<Program> programs =
      compile_programs(pipeline_input({PipelineOrder::kBreadthFirst, 2, 1}, 2, 1, 0), ProgramKind::kStep);
  EXPECT_THAT(check_world(programs), IsEmpty());
  Instruction& first = on_queue(programs[0], Queue::kForwardPipe, 0);
  EXPECT_EQ(first.layer, 1);
  first.layer = 5;
  EXPECT_THAT(check_world(programs),
              ::testing::Contains(HasSubstr("rank 1 forward-pipe queue: instruction 0 (recv) never starts")));
}

// Each rank's send waits for what the other sends after its own wait.
TEST(Replay, FindsACycleOfWaits) {
  std::vector<Program> programs(2);
  for (int rank = 0; rank < 2; ++rank) {
    Program& program = programs[static_cast<size_t>(rank)];
    program.rank = rank;
    program.instructions.resize(2);
    const Queue sends = rank == 0 ? Queue::kForwardPipe : Queue::kBackwardPipe,
                receives = rank == 0 ? Queue::kBackwardPipe : Queue::kForwardPipe;
    program.instructions[0].op = Op::kRecv;
    program.instructions[0].queue = receives;
    program.instructions[1].op = Op::kSend;
    program.instructions[1].queue = sends;
    for (Instruction& instruction : program.instructions) instruction.peer = 1 - rank;
  }
  EXPECT_THAT(check_world(programs), IsEmpty());
  for (Program& program : programs) program.instructions[1].waits = {{program.instructions[0].queue, 1}};
  EXPECT_THAT(check_world(programs), ::testing::SizeIs(4));
}

TEST(Replay, FindsCollectivesThatDiffer) {
  const std::vector<Program> programs =
      compile_programs(tiny_input(tiny_gpt2(1, false), {1, 1, 2, 0}, 1), ProgramKind::kStep);
  const auto blocked_when = [&](auto&& change) {
    std::vector<Program> broken = programs;
    change(on_queue(broken[1], Queue::kDataGroup, 0), broken[1]);
    return check_world(broken);
  };
  const auto is_reported =
      ::testing::IsSupersetOf({HasSubstr("rank 0 data queue: instruction 0 (collective) never starts"),
                               HasSubstr("rank 1 data queue: instruction 0 (collective) never starts")});
  EXPECT_THAT(blocked_when([](Instruction&, Program&) {}), IsEmpty());
  EXPECT_THAT(blocked_when([](Instruction& i, Program&) { i.collective = CollectiveKind::kReduceScatter; }),
              is_reported);
  EXPECT_THAT(blocked_when([](Instruction& i, Program&) { i.elements += 1; }), is_reported);
  EXPECT_THAT(blocked_when([](Instruction& i, Program& p) {
                p.groups[static_cast<size_t>(i.group)].ranks = {1, 0};
              }),
              is_reported);
}

TEST(Replay, QueuesOverlapAndWaitsAreKept) {
  std::vector<Program> programs(1);
  Program& program = programs[0];
  program.instructions.resize(4);
  program.instructions[1].queue = Queue::kToDisk;  // beside instruction 0
  program.instructions[2].queue = Queue::kToDisk;
  program.instructions[3].waits = {{Queue::kToDisk, 2}};
  EXPECT_EQ(replay(programs, unit_duration).seconds, 3);
  program.instructions[3].waits.clear();
  EXPECT_EQ(replay(programs, unit_duration).seconds, 2);
}

// Every forward and every backward of a stage takes one slot, all else nothing: a stage is busy 2m slots and the
// pipeline adds p - 1 slots to fill and p - 1 to drain. Weight parts take nothing: the gradient is sent before the last
// of them, so with a duration they would overlap with the drain and beat the formula.
TEST(Replay, UniformStagesTakeMicroBatchesPlusStagesMinusOneSlots) {
  for (int64_t stages : {1, 2, 4})
    for (int64_t micro_batches : {1, 3, 8}) {
      const std::vector<Program> programs =
          compile_programs(tiny_input(tiny_gpt2(4, false), {1, stages, 1, 0}, micro_batches), ProgramKind::kStep);
      const auto is_forward = [](const Instruction& instruction) {
        return instruction.direction == Direction::kForward;
      };
      const auto counts = [](const Instruction& instruction) {
        return instruction.op == Op::kRun && instruction.direction != Direction::kBackwardWeight;
      };
      const Duration duration = [&](const Program& program, const Instruction& instruction) {
        if (!counts(instruction)) return 0.0;
        const int64_t alike = std::ranges::count_if(program.instructions, [&](const Instruction& other) {
          return counts(other) && is_forward(other) == is_forward(instruction);
        });
        return static_cast<double>(micro_batches) / static_cast<double>(alike);
      };
      // Sums of at most 2 x (m + p - 1) x 30 fractions: each rounded by 1e-16: far below 1e-9.
      EXPECT_NEAR(replay(programs, duration).seconds, static_cast<double>(2 * (micro_batches + stages - 1)), 1e-9)
          << stages << " stages, " << micro_batches << " micro-batches";
    }
}

}  // namespace
}  // namespace strata

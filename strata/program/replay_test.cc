// SPDX-License-Identifier: Apache-2.0
#include "strata/program/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "strata/program/testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
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

// Waits point backwards in the list. If the lists of all ranks run to the end one instruction at a time, no set of waits can
// stop them, whatever bytes packing lets bookings share.
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

}  // namespace
}  // namespace strata

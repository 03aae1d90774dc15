// SPDX-License-Identifier: Apache-2.0
#include "strata/program/pipeline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "strata/program/replay.h"
#include "strata/program/testing.h"

namespace strata {
namespace {

using ::testing::IsEmpty;

std::string name_of(const PipelineShape& shape, int64_t virtual_stages, int zero) {
  return fmt::format("{} over {} stages x {}, {} micro-batches, zero {}", order_name(shape.order), shape.num_stages,
                     virtual_stages, shape.num_micro_batches, zero);
}

// The programs as if every rank had one queue: instructions strictly in list order.
std::vector<Program> in_list_order(std::vector<Program> programs) {
  for (Program& program : programs)
    for (Instruction& instruction : program.instructions) {
      instruction.queue = Queue::kCompute;
      instruction.waits.clear();
    }
  return programs;
}

// compile() has checked each rank's order and memory. Waits point backwards in the list: if the lists of all ranks run
// to the end one instruction at a time, no set of waits can stop them.
TEST(Pipeline, EveryOrderRunsToTheEnd) {
  for (PipelineOrder order : kAllOrders)
    for (int64_t stages : {1, 2, 3, 4})
      for (int64_t virtual_stages : {1, 2, 3})
        for (int64_t micro_batches : {1, 2, 3, 4, 5, 6, 7, 8, 9})
          for (int zero : {0, 1, 2, 3}) {
            const PipelineShape shape{order, stages, micro_batches};
            if (!is_valid(shape, virtual_stages)) continue;
            const CompileInput input = pipeline_input(shape, virtual_stages, zero == 0 ? 1 : 2, zero);
            const std::vector<Program> programs = compile_programs(input, ProgramKind::kStep);
            EXPECT_THAT(check_world(programs), IsEmpty()) << name_of(shape, virtual_stages, zero);
            EXPECT_THAT(check_world(in_list_order(programs)), IsEmpty()) << name_of(shape, virtual_stages, zero);
          }
}

}  // namespace
}  // namespace strata

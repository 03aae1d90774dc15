// SPDX-License-Identifier: Apache-2.0
#include "strata/program/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "strata/base/testing.h"
#include "strata/program/replay.h"
#include "strata/program/testing.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Compile, EveryPlanRunsToTheEnd) {
  for (bool tied : {false, true})
    for (int64_t tp : {1, 2})
      for (int64_t pp : {1, 2, 3})
        for (int64_t dp : {1, 2})
          for (int zero : {0, 1, 2, 3})
            for (int64_t accumulation : {1, 3})
              for (GradientReduce reduce : {GradientReduce::kLast, GradientReduce::kEach}) {
                CompileInput input = tiny_input(tiny_gpt2(2, tied), {tp, pp, dp, zero}, accumulation);
                input.plan.reduce = reduce;
                for (ProgramKind kind : {ProgramKind::kStep, ProgramKind::kEvaluation, ProgramKind::kSave})
                  EXPECT_THAT(check_world(compile_programs(input, kind)), IsEmpty())
                      << "tp " << tp << " pp " << pp << " dp " << dp << " zero " << zero << " tied " << tied;
              }
}

// A tied table whose owner and alias are in layers of other ZeRO stages.
TEST(Compile, TiedTableUnderUnequalZeroStagesRunsToTheEnd) {
  for (int embedding : {0, 1, 2, 3})
    for (int head : {0, 1, 2, 3}) {
      CompileInput input = tiny_input(tiny_gpt2(1, true), {1, 2, 2, 0}, 2);
      input.plan.layers.front().zero = embedding;
      input.plan.layers.back().zero = head;
      EXPECT_THAT(check_world(compile_programs(input, ProgramKind::kStep)), IsEmpty()) << embedding << " and " << head;
    }
}

TEST(Compile, RefusesAPlanThatDoesNotFitTheModel) {
  CompileInput input = tiny_input(tiny_gpt2(1, false), {}, 1);
  input.plan.stage_layers = {3};
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { compile(input, {ProgramKind::kStep}); }),
              HasSubstr("the stages must add up to 4"));
}

TEST(Compile, ProgramsOfASetShareTheirPersistentBookings) {
  CompileInput input = tiny_input(tiny_gpt2(2, true), {}, 2);
  input.decode_tokens = 4;
  input.decode_cache_tokens = 16;
  const ProgramSet set =
      compile(input, {ProgramKind::kStep, ProgramKind::kEvaluation, ProgramKind::kSave, ProgramKind::kDecode});
  const Program& step = *set.find("step");
  int64_t largest = 0;
  for (const Program& program : set.programs) {
    largest = std::max(largest, program.arena_bytes[0]);
    for (size_t index = 0; index < step.bookings.size() && step.bookings[index].persistent; ++index) {
      EXPECT_TRUE(program.bookings[index].persistent);
      EXPECT_EQ(program.bookings[index].name, step.bookings[index].name);
      EXPECT_EQ(program.bookings[index].offset, step.bookings[index].offset);
    }
  }
  EXPECT_EQ(set.arena_bytes[0], largest);
  EXPECT_EQ(set.find("nothing"), nullptr);
}

// A checkpoint is read after the program has ended, so no two of its bookings may share bytes.
TEST(Compile, SavedBookingsLieApart) {
  const Program save = compile(tiny_input(tiny_gpt2(2, true), {}, 1), {ProgramKind::kSave}).programs.front();
  int64_t bytes = 0;
  for (const Booking& booking : save.bookings)
    if (booking.tier == Tier::kDisk) bytes += (booking.bytes + 63) / 64 * 64;
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(save.arena_bytes[static_cast<size_t>(Tier::kDisk)], bytes);
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/program/schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace strata {
namespace {

std::string order_of(int64_t stage, int64_t num_stages, int64_t num_micro_batches) {
  std::string text;
  for (const ScheduleItem& item : one_forward_one_backward(stage, num_stages, num_micro_batches))
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", item.backward ? "B" : "F", item.micro_batch);
  return text;
}

// Narayanan et al., ICML'21, figure 3 (top), with six micro-batches.
TEST(Schedule, FourStagesOfSixMicroBatchesByHand) {
  EXPECT_EQ(order_of(0, 4, 6), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(order_of(1, 4, 6), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
  EXPECT_EQ(order_of(2, 4, 6), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
  EXPECT_EQ(order_of(3, 4, 6), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
}

TEST(Schedule, FewerMicroBatchesThanStages) {
  EXPECT_EQ(order_of(0, 4, 2), "F0 F1 B0 B1");
  EXPECT_EQ(order_of(3, 4, 2), "F0 B0 F1 B1");
  EXPECT_EQ(order_of(0, 1, 1), "F0 B0");
}

// Every micro-batch once forward, later once backward, both in order; at most min(stages - stage, micro-batches) wait
// for backward, and that many do.
TEST(Schedule, IsCompleteAndHoldsFewActivations) {
  for (int64_t stages : {1, 2, 3, 4, 8})
    for (int64_t micro_batches : {1, 2, 3, 7, 16})
      for (int64_t stage = 0; stage < stages; ++stage) {
        int64_t forward = 0, backward = 0, most_alive = 0;
        for (const ScheduleItem& item : one_forward_one_backward(stage, stages, micro_batches)) {
          EXPECT_EQ(item.micro_batch, item.backward ? backward : forward);
          ++(item.backward ? backward : forward);
          EXPECT_LE(backward, forward);
          most_alive = std::max(most_alive, forward - backward);
        }
        EXPECT_EQ(forward, micro_batches);
        EXPECT_EQ(backward, micro_batches);
        EXPECT_EQ(most_alive, std::min(stages - stage, micro_batches)) << "stage " << stage << " of " << stages;
      }
}

}  // namespace
}  // namespace strata

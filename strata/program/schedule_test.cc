// SPDX-License-Identifier: Apache-2.0
#include "strata/program/schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

namespace strata {
namespace {

// "F0.1": forward of micro-batch 0 through range 1; b and w are the parts of backward. Range 0 is left out.
std::string text_of(const std::vector<ScheduleItem>& items) {
  std::string text;
  for (const ScheduleItem& item : items) {
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", "FBbw"[static_cast<size_t>(item.work)], item.micro_batch);
    if (item.range > 0) text += fmt::format(".{}", item.range);
  }
  return text;
}

std::string order_of(int64_t stage, int64_t num_stages, int64_t num_micro_batches) {
  return text_of(one_forward_one_backward(stage, num_stages, num_micro_batches));
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

TEST(Schedule, OtherOrdersByHand) {
  EXPECT_EQ(text_of(gpipe(3)), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(text_of(breadth_first(2, 2)), "F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1");
  // Two stages of two ranges: groups of two micro-batches; stage 0 is four ahead, stage 1 two.
  EXPECT_EQ(text_of(interleaved(0, 2, 2, 4)), "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3");
  EXPECT_EQ(text_of(interleaved(1, 2, 2, 4)), "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3");
  EXPECT_EQ(text_of(zero_bubble(0, 3, 4)), "F0 F1 F2 b0 w0 F3 b1 w1 b2 w2 b3 w3");
  EXPECT_EQ(text_of(zero_bubble(2, 3, 4)), "F0 b0 F1 b1 F2 b2 w0 F3 b3 w1 w2 w3");
}

struct Shape {
  PipelineOrder order;
  int64_t stages, ranges, micro_batches;
};

std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  for (int64_t stages : {1, 2, 3, 4, 8})
    for (int64_t micro_batches : {1, 2, 3, 7, 16, 24}) {
      for (PipelineOrder order :
           {PipelineOrder::kGpipe, PipelineOrder::kOneForwardOneBackward, PipelineOrder::kZeroBubble})
        shapes.push_back({order, stages, 1, micro_batches});
      for (int64_t ranges : {1, 2, 3}) {
        shapes.push_back({PipelineOrder::kBreadthFirst, stages, ranges, micro_batches});
        shapes.push_back({PipelineOrder::kLayered, stages, ranges, micro_batches});
        if (micro_batches % stages == 0) shapes.push_back({PipelineOrder::kInterleaved, stages, ranges, micro_batches});
      }
    }
  return shapes;
}

std::vector<ScheduleItem> items_of(const Shape& shape, int64_t stage) {
  return schedule({shape.order, shape.stages, shape.micro_batches}, stage, shape.ranges);
}

// Every part of every micro-batch once through every range, in the order of micro-batches; backward after forward, the
// weight part after the input part.
TEST(Schedule, EveryOrderIsComplete) {
  for (const Shape& shape : all_shapes())
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      SCOPED_TRACE(fmt::format("{} stage {} of {}, {} ranges, {} micro-batches", order_name(shape.order), stage,
                               shape.stages, shape.ranges, shape.micro_batches));
      std::map<std::pair<int, Work>, int> done;  // by range and work: micro-batches so far
      for (const ScheduleItem& item : items_of(shape, stage)) {
        EXPECT_EQ(item.micro_batch, (done[{item.range, item.work}]++));
        if (item.work == Work::kForward) continue;
        const Work before = item.work == Work::kBackwardWeight ? Work::kBackwardInput : Work::kForward;
        EXPECT_LT(item.micro_batch, (done[{item.range, before}]));
      }
      const bool apart = shape.order == PipelineOrder::kZeroBubble;
      for (int range = 0; range < shape.ranges; ++range) {
        EXPECT_EQ((done[{range, Work::kForward}]), shape.micro_batches);
        EXPECT_EQ((done[{range, Work::kBackward}]), apart ? 0 : shape.micro_batches);
        EXPECT_EQ((done[{range, Work::kBackwardInput}]), apart ? shape.micro_batches : 0);
        EXPECT_EQ((done[{range, Work::kBackwardWeight}]), apart ? shape.micro_batches : 0);
      }
    }
}

// Micro-batches in flight, counted by range: those that went forward and not yet (wholly) backward.
TEST(Schedule, HoldsAsManyActivationsAsItsFormula) {
  const auto formula = [](const Shape& shape, int64_t stage) {
    const int64_t p = shape.stages, v = shape.ranges, m = shape.micro_batches;
    switch (shape.order) {
      case PipelineOrder::kOneForwardOneBackward: return std::min(p - stage, m);
      case PipelineOrder::kZeroBubble: return std::min(p, m);
      case PipelineOrder::kInterleaved: return std::min(2 * (p - 1 - stage) + (v - 1) * p + 1, v * m);
      default: return v * m;
    }
  };
  for (const Shape& shape : all_shapes())
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      int64_t alive = 0, most_alive = 0;
      for (const ScheduleItem& item : items_of(shape, stage)) {
        if (item.work == Work::kForward) ++alive;
        if (item.work == Work::kBackward || item.work == Work::kBackwardWeight) --alive;
        most_alive = std::max(most_alive, alive);
      }
      EXPECT_EQ(most_alive, formula(shape, stage))
          << order_name(shape.order) << " stage " << stage << " of " << shape.stages << ", " << shape.ranges
          << " ranges, " << shape.micro_batches << " micro-batches";
    }
}

}  // namespace
}  // namespace strata

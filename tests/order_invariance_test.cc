// SPDX-License-Identifier: Apache-2.0
// Every order of a pipeline gives the training of one rank, and over the same stages the same bits
// (docs/parallelism.md). Ranks are threads here.
#include <gtest/gtest.h>

#include "tests/random_plan.h"

namespace strata::testing {
namespace {

constexpr uint64_t kDraws = 40;
constexpr int kSteps = 2;
constexpr double kLearningRate = 0.02;

// The plan over the same pipeline stages with this many virtual stages each; the last has the layers that do not
// divide.
Plan with_virtual_stages(Plan plan, int64_t virtual_stages) {
  const int64_t entries = num_stages(plan) * virtual_stages;
  const auto layers = static_cast<int64_t>(plan.layers.size());
  plan.virtual_stages = virtual_stages;
  plan.stage_layers.assign(static_cast<size_t>(entries), layers / entries);
  plan.stage_layers.back() += layers % entries;
  return plan;
}

std::vector<PipelineOrder> orders_of(const Plan& plan) {
  if (plan.virtual_stages == 1)
    return {PipelineOrder::kOneForwardOneBackward, PipelineOrder::kGpipe, PipelineOrder::kBreadthFirst,
            PipelineOrder::kLayered, PipelineOrder::kZeroBubble};
  std::vector<PipelineOrder> orders = {PipelineOrder::kBreadthFirst, PipelineOrder::kLayered};
  if (plan.accumulation % num_stages(plan) == 0) orders.push_back(PipelineOrder::kInterleaved);
  return orders;
}

// A tied token table with both ends on one stage has one gradient, whose terms mix as the order runs the ends.
bool has_mixed_gradient(const PlanDraw& draw) { return draw.options.model.tied_head && num_stages(draw.plan) == 1; }

// SGD, as in PlanInvariance.SgdIsClose; its bound is for five steps.
void expect_orders_agree(PlanDraw draw, const PlanCourse& one_rank) {
  PlanCourse first;
  for (const PipelineOrder order : orders_of(draw.plan)) {
    draw.plan.order = order;
    SCOPED_TRACE(order_name(order) + " over " + std::to_string(draw.plan.virtual_stages) +
                 " virtual stages: " + draw.text);
    const PlanCourse course = run_plan(draw, kSteps, kLearningRate);
    const Deviation deviation = largest_deviation(course, one_rank, 1e-5);
    EXPECT_LT(deviation.value, 2e-5) << deviation.where;
    if (first.losses.empty()) first = course;
    if (has_mixed_gradient(draw)) continue;
    EXPECT_EQ(course.losses, first.losses);
    EXPECT_EQ(course.after, first.after);
  }
}

TEST(OrderInvariance, EveryOrderIsOneTraining) {
  for (uint64_t seed = 1; seed <= kDraws; ++seed) {
    PlanDraw draw = draw_plan(seed, OptimizerKind::kSgd);
    const PlanCourse one_rank = run_one_rank(draw, kSteps, kLearningRate);
    expect_orders_agree(draw, one_rank);
    const auto layers = static_cast<int64_t>(draw.plan.layers.size());
    for (const int64_t virtual_stages : {2, 3}) {
      if (layers < virtual_stages * num_stages(draw.plan)) continue;
      PlanDraw looped = draw;
      looped.plan = with_virtual_stages(draw.plan, virtual_stages);
      expect_orders_agree(looped, one_rank);
    }
  }
}

}  // namespace
}  // namespace strata::testing

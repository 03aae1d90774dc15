// SPDX-License-Identifier: Apache-2.0
// Any plan for any number of ranks gives the training of one rank (docs/numerics.md). Ranks are threads here.
#include <gtest/gtest.h>

#include "tests/random_plan.h"

namespace strata::testing {
namespace {

constexpr int kSteps = 5;
constexpr uint64_t kDraws = 200;

// SGD with momentum: what differs is the order of f32 sums. A tensor moves by about lr * gradient, whose rounding is a
// few 2^-24 = 6e-8 of its summands, and these are up to 100 times larger than what is left of them.
TEST(PlanInvariance, SgdIsClose) {
  for (uint64_t seed = 1; seed <= kDraws; ++seed) {
    const PlanDraw draw = draw_plan(seed, OptimizerKind::kSgd);
    SCOPED_TRACE(draw.text);
    const Deviation deviation = largest_deviation(run_plan(draw, kSteps, 0.02), run_one_rank(draw, kSteps, 0.02), 1e-5);
    EXPECT_LT(deviation.value, 2e-5) << deviation.where;
  }
}

// AdamW normalises: where a gradient is rounding alone (an attention key bias has none in exact arithmetic), a part of
// the tensor moves by the learning rate in any direction. In units of how far the tensor moves.
TEST(PlanInvariance, AdamwIsClose) {
  for (uint64_t seed = 1; seed <= kDraws; ++seed) {
    const PlanDraw draw = draw_plan(seed, OptimizerKind::kAdamW);
    SCOPED_TRACE(draw.text);
    const Deviation deviation = largest_deviation(run_plan(draw, kSteps, 1e-3), run_one_rank(draw, kSteps, 1e-3), 1e-3);
    EXPECT_LT(deviation.value, 1e-2) << deviation.where;
  }
}

// The order of sums is a plan's tp, dp, pp and micro-batches; how states are sharded and what is recomputed is not
// seen.
TEST(PlanInvariance, ShardingAndRecomputeAreBitEqual) {
  for (uint64_t seed = 1; seed <= kDraws; ++seed) {
    PlanDraw draw = draw_plan(seed, OptimizerKind::kAdamW);
    if (draw.plan.num_ranks == 1) continue;
    draw.plan.reduce = GradientReduce::kLast;
    std::vector<PlanCourse> courses;
    for (int zero = 0; zero < 4; ++zero) {
      for (LayerPlan& layer : draw.plan.layers) {
        layer.zero = zero;
        layer.activations = static_cast<ActivationPolicy>((zero + seed) % 3);
      }
      courses.push_back(run_plan(draw, 2, 1e-3));
    }
    SCOPED_TRACE(draw.text);
    for (int zero = 1; zero < 4; ++zero) {
      EXPECT_EQ(courses[static_cast<size_t>(zero)].after, courses[0].after) << "ZeRO " << zero;
      EXPECT_EQ(courses[static_cast<size_t>(zero)].losses, courses[0].losses) << "ZeRO " << zero;
    }
  }
}

}  // namespace
}  // namespace strata::testing

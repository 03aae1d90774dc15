// SPDX-License-Identifier: Apache-2.0
#include "tests/plan_checks.h"

#include <exception>

#include "strata/base/error.h"
#include "tests/random_plan.h"

namespace strata::testing {
namespace {

constexpr int kSteps = 5;

// How far a claim of closeness lets a course be from that of one rank.
struct Closeness {
  OptimizerKind optimizer = OptimizerKind::kSgd;
  double epsilon = 0;  // of AdamW
  double learning_rate = 0;
  double floor = 0;
  double bound = 0;
};

std::string check_closeness(uint64_t seed, const Closeness& claim) {
  PlanDraw draw = draw_plan(seed, claim.optimizer);
  draw.options.optimizer.eps = claim.epsilon;
  try {
    const PlanCourse reference = run_one_rank(draw, kSteps, claim.learning_rate);
    const Deviation deviation = largest_deviation(run_plan(draw, kSteps, claim.learning_rate), reference, claim.floor);
    if (deviation.value < claim.bound) return "";
    return fmt::format("{} is off by {:.2e}, allowed {:.0e}: {}", deviation.where, deviation.value, claim.bound,
                       draw.text);
  } catch (const std::exception& error) {
    return fmt::format("{}: {}", error.what(), draw.text);
  }
}

std::vector<PlanCourse> courses_of_zero_stages(PlanDraw draw, uint64_t seed) {
  draw.plan.reduce = GradientReduce::kLast;
  std::vector<PlanCourse> courses;
  for (int zero = 0; zero < 4; ++zero) {
    for (LayerPlan& layer : draw.plan.layers) {
      layer.zero = zero;
      layer.activations = static_cast<ActivationPolicy>((static_cast<uint64_t>(zero) + seed) % 4);
    }
    draw.plan.sequence_parallel = zero % 2 == 0;
    courses.push_back(run_plan(draw, 2, 1e-3));
  }
  return courses;
}

}  // namespace

// With momentum: what differs is the order of f32 sums. A tensor moves by about lr * gradient, whose rounding is a few
// 2^-24 = 6e-8 of its summands, and these are up to 100 times larger than what is left of them.
std::string check_sgd(uint64_t seed) { return check_closeness(seed, {OptimizerKind::kSgd, 0, 0.02, 1e-5, 2e-5}); }

// AdamW normalises: where a gradient is rounding alone (an attention key bias has none in exact arithmetic), its size
// is 1e-9 to 1e-8. With an epsilon of 1e-8 that moves a part of the tensor in any direction, by up to 5 % of what the
// tensor moves in one of a thousand draws; with 1e-6 it is 100 times less, and what has a gradient moves as before.
std::string check_adamw(uint64_t seed) {
  return check_closeness(seed, {OptimizerKind::kAdamW, 1e-6, 1e-3, 1e-3, 1e-3});
}

// The order of sums is a plan's tp, dp, pp and micro-batches.
std::string check_sharding(uint64_t seed) {
  const PlanDraw draw = draw_plan(seed, OptimizerKind::kAdamW);
  if (draw.plan.num_ranks == 1) return "";
  try {
    const std::vector<PlanCourse> courses = courses_of_zero_stages(draw, seed);
    for (size_t zero = 1; zero < courses.size(); ++zero)
      if (courses[zero].after != courses[0].after || courses[zero].losses != courses[0].losses)
        return fmt::format("ZeRO {} and 0 differ: {}", zero, draw.text);
    return "";
  } catch (const std::exception& error) {
    return fmt::format("{}: {}", error.what(), draw.text);
  }
}

}  // namespace strata::testing

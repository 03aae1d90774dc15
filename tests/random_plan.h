// SPDX-License-Identifier: Apache-2.0
// Draws of plan invariance: a small random model, a random legal plan for 1 to 8 ranks, and documents of unequal
// length, all from one number.
#pragma once

#include "tests/model_harness.h"

namespace strata::testing {

struct PlanDraw {
  HarnessOptions options;  // model, optimizer, sizes of the one-rank run
  Plan plan;
  std::vector<Document> documents;  // of one global batch
  std::string text;                 // the plan and model in a line
};

PlanDraw draw_plan(uint64_t seed, OptimizerKind optimizer);

// Losses, gradient norms, and all weights and states by name after a few steps.
struct PlanCourse {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<float>> before;  // weights
  std::map<std::string, std::vector<float>> after;   // weights and states
};
PlanCourse run_one_rank(const PlanDraw& draw, int steps, double learning_rate);
PlanCourse run_plan(const PlanDraw& draw, int steps, double learning_rate);

// The largest |a - b| / scale over losses, norms and tensors, and where it is. The scale of a tensor is how far the
// reference moved it (states: their size), at least `floor` times the root of its number of elements: what moves less
// than that is rounding. Every step also rounds every value once, by half of its last bit: that much is left out.
struct Deviation {
  double value = 0;
  std::string where;
};
Deviation largest_deviation(const PlanCourse& course, const PlanCourse& reference, double floor);

}  // namespace strata::testing

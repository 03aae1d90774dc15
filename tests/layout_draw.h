// SPDX-License-Identifier: Apache-2.0
// Draws of plan invariance that are not random: the tiny decoder under given degrees, with documents of unequal length.
// Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include "tests/random_plan.h"

namespace strata::testing {

constexpr double kLearningRate = 0.02;

struct Degrees {
  int64_t tp = 1, pp = 1, dp = 1;
  int zero = 0;
  int64_t cp = 1;
};

// Gives the draw's plan these degrees and micro-batches of equal size for its documents.
inline void set_degrees(PlanDraw& draw, const Degrees& degrees, int64_t accumulation) {
  const auto documents = static_cast<int64_t>(draw.documents.size());
  const int64_t layers = num_layers(draw.options.model);
  draw.options.micro_batch = documents;
  draw.plan = single_rank_plan(draw.options.model, ActivationPolicy::kKeep, documents / degrees.dp / accumulation,
                               accumulation, 1);
  draw.plan.num_ranks = degrees.tp * degrees.pp * degrees.dp * degrees.cp;
  draw.plan.stage_layers.assign(static_cast<size_t>(degrees.pp), layers / degrees.pp);
  for (LayerPlan& layer : draw.plan.layers) {
    layer.tp = degrees.tp;
    layer.dp = degrees.dp;
    layer.cp = degrees.cp;
    layer.zero = degrees.zero;
  }
  draw.text = fmt::format("tp {} pp {} dp {} cp {} ZeRO {} accumulation {}", degrees.tp, degrees.pp, degrees.dp,
                          degrees.cp, degrees.zero, accumulation);
}

// Twelve documents of 1 to 16 targets, dealt out to the data-parallel ranks in equal micro-batches.
inline PlanDraw draw_of(const Degrees& degrees, int64_t accumulation, bool tied = true) {
  PlanDraw draw;
  draw.options.model = tiny_gpt2();
  draw.options.model.tied_head = tied;
  draw.options.optimizer.kind = OptimizerKind::kSgd;
  draw.options.optimizer.clip_norm = 0.1;
  draw.options.threads = 1;
  for (uint64_t index = 0; index < 12; ++index)
    draw.documents.push_back(
        make_documents(1, static_cast<int>(1 + index * 5 % 16), static_cast<int>(draw.options.model.vocab), index)[0]);
  set_degrees(draw, degrees, accumulation);
  return draw;
}

// The bound of check_sgd (plan_checks.cc).
inline void expect_close(const PlanCourse& course, const PlanCourse& reference) {
  const Deviation deviation = largest_deviation(course, reference, 1e-5);
  EXPECT_LT(deviation.value, 2e-5) << deviation.where;
}

}  // namespace strata::testing

// SPDX-License-Identifier: Apache-2.0
#include "strata/layers/optimizer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

OptimizerConfig optimizer(OptimizerKind kind, double momentum) {
  OptimizerConfig config;
  config.kind = kind;
  config.momentum = momentum;
  return config;
}

TEST(OptimizerState, OfBothOptimizersAndPrecisions) {
  EXPECT_THAT(optimizer_states(optimizer(OptimizerKind::kAdamW, 0), Precision::kF32),
              ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(optimizer_states(optimizer(OptimizerKind::kAdamW, 0), Precision::kBF16),
              ElementsAre("master", "exp_avg", "exp_avg_sq"));
  EXPECT_THAT(optimizer_states(optimizer(OptimizerKind::kSgd, 0), Precision::kF32), IsEmpty());
  EXPECT_THAT(optimizer_states(optimizer(OptimizerKind::kSgd, 0), Precision::kBF16), ElementsAre("master"));
  EXPECT_THAT(optimizer_states(optimizer(OptimizerKind::kSgd, 0.9), Precision::kF32), ElementsAre("momentum"));
  EXPECT_THAT(optimizer_states(optimizer(OptimizerKind::kSgd, 0.9), Precision::kBF16),
              ElementsAre("master", "momentum"));
}

TEST(OptimizerState, Index) {
  const auto states = optimizer_states(optimizer(OptimizerKind::kAdamW, 0), Precision::kBF16);
  EXPECT_EQ(state_index(states, "master"), 0);
  EXPECT_EQ(state_index(states, "exp_avg_sq"), 2);
  EXPECT_EQ(state_index(states, "momentum"), -1);
}

}  // namespace
}  // namespace strata

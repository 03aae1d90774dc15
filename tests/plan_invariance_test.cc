// SPDX-License-Identifier: Apache-2.0
// Any plan for any number of ranks gives the training of one rank (docs/numerics.md). Ranks are threads here.
// proofs/plan_invariance.sh draws more.
#include <gtest/gtest.h>

#include "tests/plan_checks.h"

namespace strata::testing {
namespace {

// Under a sanitizer a draw takes about twenty times as long.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kDraws = 20;
#else
constexpr uint64_t kDraws = 200;
#endif

TEST(PlanInvariance, SgdIsClose) {
  for (uint64_t seed = 1; seed <= kDraws; ++seed) EXPECT_EQ(check_sgd(seed), "");
}

TEST(PlanInvariance, AdamwIsClose) {
  for (uint64_t seed = 1; seed <= kDraws; ++seed) EXPECT_EQ(check_adamw(seed), "");
}

TEST(PlanInvariance, ShardingAndRecomputeAreBitEqual) {
  for (uint64_t seed = 1; seed <= kDraws; ++seed) EXPECT_EQ(check_sharding(seed), "");
}

}  // namespace
}  // namespace strata::testing

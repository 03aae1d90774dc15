// SPDX-License-Identifier: Apache-2.0
#include "strata/device/cpu/team.h"

#include <gtest/gtest.h>

#include <numeric>

namespace strata {
namespace {

TEST(Team, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 3, 5}) {
    Team team(threads);
    for (int64_t count : {0, 1, 7, 64, 1001}) {
      std::vector<int> seen(count, 0);
      team.parallel_for(count, 8, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++seen[i];
      });
      team.for_each(count, [&](int64_t i) { ++seen[i]; });
      EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), int64_t{0}), 2 * count);
      for (int times : seen) EXPECT_EQ(times, 2);
    }
  }
}

TEST(Team, ManyShortCalls) {
  Team team(2);
  std::vector<int64_t> sums(2, 0);
  for (int call = 0; call < 20000; ++call) team.run([&](int member, int) { sums[member] += call; });
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(Team, WakesAfterSleep) {
  Team team(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // workers are past spinning
  int calls[2] = {0, 0};
  team.run([&](int member, int) { calls[member] = 1; });
  EXPECT_EQ(calls[0] + calls[1], 2);
}

}  // namespace
}  // namespace strata

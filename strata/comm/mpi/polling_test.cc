// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/mpi/polling.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

TEST(Polling, EndsWhenTheConditionHolds) {
  for (const bool spins : {false, true}) {
    int looks = 0;
    EXPECT_TRUE(Polling(spins).wait(20, [&] { return ++looks == 5; }));
    EXPECT_EQ(looks, 5);
    EXPECT_TRUE(Polling(spins).wait(0, [] { return true; }));
  }
}

TEST(Polling, GivesUpInTime) {
  const auto start = Clock::now();
  EXPECT_FALSE(Polling(true).wait(0.02, [] { return false; }));
  EXPECT_GE(seconds_since(start), 0.02);
  EXPECT_LT(seconds_since(start), 10);
}

// After 8 ms every look is followed by a sleep of the longest kind, 500 us: at most 1 + 92 ms / 0.5 ms looks.
TEST(Polling, ALongWaitLooksRarely) {
  for (const bool spins : {false, true}) {
    const auto start = Clock::now();
    int late_looks = 0;
    EXPECT_FALSE(Polling(spins).wait(0.1, [&] {
      late_looks += seconds_since(start) > 0.008 && seconds_since(start) < 0.1;
      return false;
    }));
    EXPECT_LE(late_looks, 185);
    EXPECT_GE(late_looks, 1);
  }
}

// A look takes 5 us here, as at messages: there can be no more of them than there is time before the sleeps, and half
// as many again for a clock that is read before the look.
TEST(Polling, SpinsForATimeAndNotForANumberOfLooks) {
  int looks = 0;
  EXPECT_FALSE(Polling(true).wait(100e-6, [&] {
    ++looks;
    for (const auto start = Clock::now(); seconds_since(start) < 5e-6;) {
    }
    return false;
  }));
  EXPECT_LE(looks, 30);
}

}  // namespace
}  // namespace strata

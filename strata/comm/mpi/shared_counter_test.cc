// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/mpi/shared_counter.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <new>

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

TEST(SharedCounter, GivesUpAfterTheSeconds) {
  SharedCounter counter;
  const auto begin = Clock::now();
  EXPECT_FALSE(counter.wait_while(0, 0.1, true));
  EXPECT_GE(seconds_since(begin), 0.1);
}

// Two processes raise and wait in turns; one of them is always late enough for the other to sleep.
TEST(SharedCounter, WakesAnotherProcess) {
  constexpr uint32_t kTurns = 50;
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const counters = new (memory) SharedCounter[2];
  const auto begin = Clock::now();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  const int own = child == 0 ? 1 : 0;
  bool woken = true;
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    if (own == static_cast<int>(turn % 2)) ::usleep(1000);
    counters[own].raise();
    woken = woken && counters[1 - own].wait_while(turn, 20, false);
  }
  if (child == 0) ::_exit(woken ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(woken);
  EXPECT_EQ(status, 0);
  EXPECT_LT(seconds_since(begin), 20);
  ::munmap(memory, 4096);
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "strata/device/cpu/team.h"
#include "strata/kernels/kernels.h"

namespace strata {
namespace {

TensorView view_of(std::vector<float>& values, int64_t rows, int64_t cols) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32, rows, cols};
}

// Products whose kernel has its stack pointer in a block of the heap: a handler's frame below it would destroy what
// malloc keeps there, which it finds out a few products later.
TEST(SignalRequests, MayComeInsideAProduct) {
  Team team(2);
  const SignalRequests requests;
  std::atomic<bool> done = false;
  std::jthread sender([&] {
    while (!done) ::kill(::getpid(), SIGUSR2);
  });
  constexpr int64_t kTokens = 32, kIn = 32, kOut = 96;
  std::vector<float> dy(kTokens * kOut, 1), weight(kOut * kIn, 1), dx(kTokens * kIn);
  for (int turn = 0; turn < 3000; ++turn)
    kernels::linear_backward_input({team, {}}, view_of(dy, kTokens, kOut), view_of(weight, kOut, kIn),
                                   view_of(dx, kTokens, kIn));
  done = true;
  sender.join();
  EXPECT_TRUE(requests.stop_requested());
  EXPECT_EQ(dx, std::vector<float>(dx.size(), kOut));
}

TEST(SignalRequests, AreTakenBack) {
  ::signal(SIGUSR1, SIG_IGN);
  {
    SignalRequests requests;
    ::raise(SIGUSR1);
    EXPECT_TRUE(requests.take_save_request());
    EXPECT_FALSE(requests.take_save_request());
    EXPECT_FALSE(requests.stop_requested());
    ::raise(SIGTERM);
    EXPECT_TRUE(requests.stop_requested());
  }
  ::raise(SIGUSR1);
  EXPECT_EQ(::signal(SIGUSR1, SIG_DFL), SIG_IGN);
}

}  // namespace
}  // namespace strata

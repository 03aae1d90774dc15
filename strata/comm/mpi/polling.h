// SPDX-License-Identifier: Apache-2.0
// Waiting for what another process does: look, and look again, with more and more patience between. A look at messages
// costs microseconds, and the core is wanted by the computation that runs beside: so a wait spins shortly, whatever the
// cost of a look, and later sleeps for a small part of the time it has taken.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace strata {

class Polling {
 public:
  // Spins only when every rank of the machine can have a core.
  explicit Polling(bool spins = false) : spins_(spins) {}

  // Whether the condition held before `seconds` were over.
  template <typename Condition>
  bool wait(double seconds, Condition&& condition) const {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    while (!condition()) {
      const auto waited = Clock::now() - start;
      if (std::chrono::duration<double>(waited).count() >= seconds) return false;
      if (spins_ && waited < kSpinning)
        pause();
      else if (waited < kYielding)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / 16, kShortestSleep, kLongestSleep));
    }
    return true;
  }

 private:
  static constexpr std::chrono::microseconds kSpinning{20};
  static constexpr std::chrono::microseconds kYielding{100};      // on a busy core each lets another process run
  static constexpr std::chrono::microseconds kShortestSleep{50};  // about what the kernel's timer resolves
  static constexpr std::chrono::microseconds kLongestSleep{500};  // sockets hold what arrives meanwhile

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  bool spins_;
};

}  // namespace strata

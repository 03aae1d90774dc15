// SPDX-License-Identifier: Apache-2.0
// Waiting for what another process does: look, and look again, with more and more patience between.
#pragma once

#include <chrono>
#include <thread>

namespace strata {

class Polling {
 public:
  // Spins only when every rank of the machine can have a core.
  explicit Polling(bool spins = false) : spins_(spins ? kSpins : 0) {}

  // Whether the condition held before `seconds` were over.
  template <typename Condition>
  bool wait(double seconds, Condition&& condition) const {
    for (int turn = 0; turn < spins_; ++turn) {
      if (condition()) return true;
      pause();
    }
    using Clock = std::chrono::steady_clock;
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    for (int turn = 0; !condition(); ++turn) {
      if (Clock::now() >= deadline) return false;
      if (turn < kYields)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(kSleep);
    }
    return true;
  }

 private:
  static constexpr int kSpins = 2000;                     // a few tens of us
  static constexpr int kYields = 200;                     // on a busy core each lets another process run
  static constexpr std::chrono::microseconds kSleep{50};  // about what the kernel's timer resolves

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  int spins_;
};

}  // namespace strata

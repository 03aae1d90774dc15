// SPDX-License-Identifier: Apache-2.0
// Where threads wait for a condition over atomics: they spin when every thread can have a core, then yield, then sleep.
// Who makes the condition true calls wake() after the change; both sides use sequentially consistent atomics, so either
// the waiting thread sees the change or the waking thread sees that somebody sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace strata {

using Deadline = std::optional<std::chrono::steady_clock::time_point>;  // none: waits for ever

inline Deadline deadline_after(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

class WaitPoint {
 public:
  explicit WaitPoint(bool spins) : spins_(spins ? kSpins : 0) {}

  // Whether the condition held before the deadline.
  template <typename Condition>
  bool wait(const Deadline& deadline, Condition&& condition) {
    for (int turn = 0; turn < spins_; ++turn) {
      if (condition()) return true;
      pause();
    }
    for (int turn = 0; turn < kYields; ++turn) {
      if (condition()) return true;
      std::this_thread::yield();
    }
    return sleep(deadline, condition);
  }

  void wake() {
    if (sleepers_.load() == 0) return;
    { const std::lock_guard lock(mutex_); }  // a thread between its look at the condition and its sleep holds it
    changed_.notify_all();
  }

 private:
  static constexpr int kSpins = 2000;  // a few tens of us
  static constexpr int kYields = 100;  // on a busy core each lets another thread run

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  template <typename Condition>
  bool sleep(const Deadline& deadline, Condition& condition) {
    sleepers_.fetch_add(1);
    std::unique_lock lock(mutex_);
    bool held = true;
    if (deadline)
      held = changed_.wait_until(lock, *deadline, condition);
    else
      changed_.wait(lock, condition);
    sleepers_.fetch_sub(1);
    return held;
  }

  int spins_;
  std::atomic<int> sleepers_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace strata

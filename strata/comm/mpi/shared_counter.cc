// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/mpi/shared_counter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>
#include <thread>

namespace strata {
namespace {

constexpr int kSpins = 2000;  // a few tens of us
constexpr int kYields = 50;   // on a busy core each lets another process run

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Between processes: the address is not private.
void futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

void SharedCounter::raise() {
  value_.fetch_add(1);
  if (sleepers_.load() != 0) futex(value_, FUTEX_WAKE, INT_MAX, nullptr);
}

bool SharedCounter::wait_while(uint32_t old, double seconds, bool spins) {
  for (int turn = 0; spins && turn < kSpins; ++turn) {
    if (value() != old) return true;
    pause();
  }
  for (int turn = 0; turn < kYields; ++turn) {
    if (value() != old) return true;
    std::this_thread::yield();
  }
  return sleep_while(old, seconds);
}

// The kernel sleeps only if the counter is still `old` once sleepers_ shows somebody, so no raise is missed.
bool SharedCounter::sleep_while(uint32_t old, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  sleepers_.fetch_add(1);
  while (value_.load() == old) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
    if (left <= 0) break;
    const timespec timeout = {left / 1'000'000'000, left % 1'000'000'000};
    futex(value_, FUTEX_WAIT, old, &timeout);
  }
  sleepers_.fetch_sub(1);
  return value_.load() != old;
}

}  // namespace strata

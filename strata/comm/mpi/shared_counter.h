// SPDX-License-Identifier: Apache-2.0
// A counter in memory that processes share, which one of them raises and others wait for. They spin when every rank of
// the machine can have a core, then yield, then sleep until they are woken: a sleeping rank leaves its core to its own
// computation, and is not late.
#pragma once

#include <atomic>
#include <cstdint>

namespace strata {

class SharedCounter {
 public:
  // May be seen one too late, never too early.
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

  // What was written before is seen by whoever sees the new value.
  void raise();

  // Whether the counter left `old` before `seconds` were over.
  bool wait_while(uint32_t old, double seconds, bool spins);

 private:
  bool sleep_while(uint32_t old, double seconds);

  std::atomic<uint32_t> value_ = 0;
  std::atomic<uint32_t> sleepers_ = 0;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(SharedCounter) == 8);

}  // namespace strata

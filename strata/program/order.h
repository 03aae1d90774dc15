// SPDX-License-Identifier: Apache-2.0
// What is known to be finished when an instruction starts: vector clocks over the queues, from queue order and waits.
// Pure.
#pragma once

#include <array>

#include "strata/program/program.h"

namespace strata {

// Number of instructions of each queue that are finished.
using Clock = std::array<int, kNumQueues>;

class HappensBefore {
 public:
  // Positions of all instructions; clocks are added one by one in list order.
  explicit HappensBefore(const Program& program);

  // Computes the clock of the next instruction in the list from its waits as they are now.
  void append(const Instruction& instruction);

  int position(int instruction) const { return positions_[instruction]; }
  const Clock& clock(int instruction) const { return clocks_[instruction]; }
  // The last instruction that a wait is for.
  int awaited(const Wait& wait) const { return by_queue_[static_cast<size_t>(wait.queue)][wait.count - 1]; }
  // Whether `first` is surely finished when `second` starts.
  bool ordered(int first, int second) const;
  // Raises the clock of the last appended instruction by a wait for `first`; returns the wait.
  Wait wait_for(int first);

 private:
  void join(Clock& clock, Queue queue, int count) const;

  const Program& program_;
  std::vector<int> positions_;                         // inside its queue
  std::array<std::vector<int>, kNumQueues> by_queue_;  // instruction indices
  std::vector<Clock> clocks_;
};

}  // namespace strata

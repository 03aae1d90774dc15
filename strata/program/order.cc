// SPDX-License-Identifier: Apache-2.0
#include "strata/program/order.h"

#include <algorithm>

#include "strata/base/error.h"

namespace strata {

HappensBefore::HappensBefore(const Program& program) : program_(program) {
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    std::vector<int>& queue = by_queue_[static_cast<size_t>(program.instructions[index].queue)];
    positions_.push_back(static_cast<int>(queue.size()));
    queue.push_back(index);
  }
  clocks_.reserve(program.instructions.size());
}

void HappensBefore::join(Clock& clock, Queue queue, int count) const {
  if (count == 0) return;
  const int finished = by_queue_[static_cast<size_t>(queue)][count - 1];
  for (int other = 0; other < kNumQueues; ++other) clock[other] = std::max(clock[other], clocks_[finished][other]);
  clock[static_cast<size_t>(queue)] = std::max(clock[static_cast<size_t>(queue)], count);
}

void HappensBefore::append(const Instruction& instruction) {
  const int index = static_cast<int>(clocks_.size());
  Clock clock{};
  join(clock, instruction.queue, positions_[index]);
  for (const Wait& wait : instruction.waits) {
    const std::vector<int>& queue = by_queue_[static_cast<size_t>(wait.queue)];
    STRATA_CHECK(wait.count >= 1 && wait.count <= static_cast<int>(queue.size()) && queue[wait.count - 1] < index,
                 "instruction {} of {} waits for a later one", index, program_.name);
    join(clock, wait.queue, wait.count);
  }
  clocks_.push_back(clock);
}

bool HappensBefore::ordered(int first, int second) const {
  return clocks_[second][static_cast<size_t>(program_.instructions[first].queue)] > positions_[first];
}

Wait HappensBefore::wait_for(int first) {
  const Wait wait{program_.instructions[first].queue, positions_[first] + 1};
  join(clocks_.back(), wait.queue, wait.count);
  return wait;
}

}  // namespace strata

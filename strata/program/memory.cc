// SPDX-License-Identifier: Apache-2.0
#include "strata/program/memory.h"

#include <algorithm>
#include <numeric>

#include "strata/base/error.h"
#include "strata/program/order.h"

namespace strata {
namespace {

constexpr int64_t kAlignBytes = 64;

int64_t round_up(int64_t bytes) { return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes; }

// The last accesses of one booking, per queue; -1: none.
struct Accesses {
  int last_write = -1;
  std::array<int, kNumQueues> reads;  // since the last write
  Accesses() { reads.fill(-1); }
};

// Instructions that must be finished before `use` may happen.
std::vector<int> conflicts(const Accesses& accesses, const Use& use) {
  std::vector<int> before;
  if (accesses.last_write >= 0) before.push_back(accesses.last_write);
  if (use.access != Access::kRead)
    for (int read : accesses.reads)
      if (read >= 0) before.push_back(read);
  return before;
}

void record(Accesses& accesses, const Use& use, int instruction, Queue queue) {
  if (use.access == Access::kRead) {
    accesses.reads[static_cast<size_t>(queue)] = instruction;
  } else {
    accesses = Accesses();
    accesses.last_write = instruction;
  }
}

// First and last instruction in the list, and on every queue, that use a booking.
struct Lifetime {
  int first = -1;
  int last = -1;
  std::array<int, kNumQueues> first_on;
  std::array<int, kNumQueues> last_on;
  Lifetime() {
    first_on.fill(-1);
    last_on.fill(-1);
  }
  bool overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

std::vector<Lifetime> find_lifetimes(const Program& program) {
  std::vector<Lifetime> lifetimes(program.bookings.size());
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    const auto queue = static_cast<size_t>(program.instructions[index].queue);
    for (const Use& use : program.instructions[index].uses) {
      Lifetime& lifetime = lifetimes[use.booking];
      if (lifetime.first < 0) lifetime.first = index;
      if (lifetime.first_on[queue] < 0) lifetime.first_on[queue] = index;
      lifetime.last = lifetime.last_on[queue] = index;
    }
  }
  return lifetimes;
}

bool same_bytes(const Booking& a, const Booking& b) {
  return a.tier == b.tier && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

int64_t pack_persistent(Program& program, Tier tier) {
  int64_t end = 0;
  for (Booking& booking : program.bookings) {
    if (!booking.persistent || booking.tier != tier) continue;
    booking.offset = end;
    end += round_up(booking.bytes);
  }
  return end;
}

// The lowest gap of at least `bytes` between bookings already placed (sorted by offset).
int64_t lowest_gap(const std::vector<std::pair<int64_t, int64_t>>& occupied, int64_t base, int64_t bytes) {
  int64_t offset = base;
  for (const auto& [begin, end] : occupied) {
    if (begin - offset >= bytes) break;
    offset = std::max(offset, end);
  }
  return offset;
}

// Largest first, each at the lowest address that is free during its whole life.
int64_t pack_transient(Program& program, const std::vector<Lifetime>& lifetimes, Tier tier, int64_t base) {
  std::vector<int> order;
  for (int index = 0; index < static_cast<int>(program.bookings.size()); ++index)
    if (!program.bookings[index].persistent && program.bookings[index].tier == tier && lifetimes[index].first >= 0) order.push_back(index);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return program.bookings[a].bytes > program.bookings[b].bytes; });
  int64_t end = base;
  std::vector<int> placed;
  for (int index : order) {
    std::vector<std::pair<int64_t, int64_t>> occupied;
    for (int other : placed)
      if (lifetimes[other].overlaps(lifetimes[index]))
        occupied.push_back({program.bookings[other].offset, program.bookings[other].offset + round_up(program.bookings[other].bytes)});
    std::sort(occupied.begin(), occupied.end());
    Booking& booking = program.bookings[index];
    booking.offset = lowest_gap(occupied, base, round_up(booking.bytes));
    end = std::max(end, booking.offset + round_up(booking.bytes));
    placed.push_back(index);
  }
  return end;
}

// Pairs (earlier, later) of transient bookings on the same bytes.
std::vector<std::pair<int, int>> sharing_pairs(const Program& program, const std::vector<Lifetime>& lifetimes) {
  std::vector<int> by_offset;
  for (int index = 0; index < static_cast<int>(program.bookings.size()); ++index)
    if (!program.bookings[index].persistent && lifetimes[index].first >= 0) by_offset.push_back(index);
  std::sort(by_offset.begin(), by_offset.end(), [&](int a, int b) { return program.bookings[a].offset < program.bookings[b].offset; });
  std::vector<std::pair<int, int>> pairs;
  for (size_t i = 0; i < by_offset.size(); ++i) {
    const Booking& low = program.bookings[by_offset[i]];
    for (size_t j = i + 1; j < by_offset.size() && program.bookings[by_offset[j]].offset < low.offset + low.bytes; ++j) {
      if (!same_bytes(low, program.bookings[by_offset[j]])) continue;
      const bool in_order = lifetimes[by_offset[i]].last < lifetimes[by_offset[j]].first;
      pairs.push_back(in_order ? std::pair{by_offset[i], by_offset[j]} : std::pair{by_offset[j], by_offset[i]});
    }
  }
  return pairs;
}

// For every instruction: instructions that must be finished because their bookings' bytes are used again.
std::vector<std::vector<int>> reuse_edges(const Program& program, const std::vector<Lifetime>& lifetimes) {
  std::vector<std::vector<int>> edges(program.instructions.size());
  for (const auto& [earlier, later] : sharing_pairs(program, lifetimes))
    for (int first : lifetimes[later].first_on)
      for (int last : lifetimes[earlier].last_on)
        if (first >= 0 && last >= 0) edges[first].push_back(last);
  return edges;
}

}  // namespace

void synchronize(Program& program) {
  HappensBefore order(program);
  std::vector<Accesses> accesses(program.bookings.size());
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    Instruction& instruction = program.instructions[index];
    order.append(instruction);
    for (const Use& use : instruction.uses)
      for (int before : conflicts(accesses[use.booking], use))
        if (before != index && !order.ordered(before, index)) instruction.waits.push_back(order.wait_for(before));
    for (const Use& use : instruction.uses) record(accesses[use.booking], use, index, instruction.queue);
  }
}

void pack(Program& program) {
  const std::vector<Lifetime> lifetimes = find_lifetimes(program);
  for (int tier = 0; tier < kNumTiers; ++tier) {
    const int64_t persistent = pack_persistent(program, static_cast<Tier>(tier));
    program.arena_bytes[tier] = pack_transient(program, lifetimes, static_cast<Tier>(tier), persistent);
  }
  const std::vector<std::vector<int>> edges = reuse_edges(program, lifetimes);
  HappensBefore order(program);
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    Instruction& instruction = program.instructions[index];
    order.append(instruction);
    for (int before : edges[index])
      if (!order.ordered(before, index)) instruction.waits.push_back(order.wait_for(before));
  }
}

void check(const Program& program) {
  HappensBefore order(program);
  std::vector<Accesses> accesses(program.bookings.size());
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    const Instruction& instruction = program.instructions[index];
    order.append(instruction);
    for (const Use& use : instruction.uses) {
      const Booking& booking = program.bookings[use.booking];
      STRATA_CHECK(booking.offset >= 0 && booking.offset + booking.bytes <= program.arena_bytes[static_cast<size_t>(booking.tier)],
                   "{}: booking {} lies outside the arena", program.name, booking.name);
      STRATA_CHECK(use.access == Access::kWrite || booking.persistent || accesses[use.booking].last_write >= 0,
                   "{}: instruction {} reads {}, which nothing wrote", program.name, index, booking.name);
      for (int before : conflicts(accesses[use.booking], use))
        STRATA_CHECK(before == index || order.ordered(before, index), "{}: instructions {} and {} use {} in no order", program.name, before, index, booking.name);
    }
    for (const Use& use : instruction.uses) record(accesses[use.booking], use, index, instruction.queue);
  }
  const std::vector<Lifetime> lifetimes = find_lifetimes(program);
  for (const auto& [earlier, later] : sharing_pairs(program, lifetimes)) {
    STRATA_CHECK(!lifetimes[earlier].overlaps(lifetimes[later]), "{}: {} and {} share bytes while both live", program.name,
                 program.bookings[earlier].name, program.bookings[later].name);
    for (int first : lifetimes[later].first_on)
      for (int last : lifetimes[earlier].last_on)
        STRATA_CHECK(first < 0 || last < 0 || order.ordered(last, first), "{}: {} may overwrite {}", program.name,
                     program.bookings[later].name, program.bookings[earlier].name);
  }
}

Ledger ledger(const Program& program, Tier tier) {
  const std::vector<Lifetime> lifetimes = find_lifetimes(program);
  const size_t steps = std::max<size_t>(program.instructions.size(), 1);
  std::vector<int64_t> change(steps + 1, 0);
  for (size_t index = 0; index < program.bookings.size(); ++index) {
    const Booking& booking = program.bookings[index];
    if (booking.tier != tier || (!booking.persistent && lifetimes[index].first < 0)) continue;
    change[booking.persistent ? 0 : lifetimes[index].first] += booking.bytes;
    if (!booking.persistent) change[lifetimes[index].last + 1] -= booking.bytes;
  }
  Ledger result;
  int64_t live = 0;
  for (size_t step = 0; step < steps; ++step) {
    live += change[step];
    if (live > result.live_bytes) {
      result.live_bytes = live;
      result.peak_instruction = static_cast<int>(step);
    }
  }
  for (size_t index = 0; index < program.bookings.size(); ++index) {
    const Booking& booking = program.bookings[index];
    const bool alive = booking.persistent || (lifetimes[index].first >= 0 && lifetimes[index].first <= result.peak_instruction &&
                                              lifetimes[index].last >= result.peak_instruction);
    if (booking.tier == tier && alive) result.bytes[static_cast<size_t>(booking.kind)] += booking.bytes;
  }
  result.arena_bytes = program.arena_bytes[static_cast<size_t>(tier)];
  return result;
}

}  // namespace strata

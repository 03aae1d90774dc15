// SPDX-License-Identifier: Apache-2.0
#include "strata/program/memory.h"

#include <algorithm>
#include <functional>
#include <map>

#include "strata/base/error.h"
#include "strata/program/order.h"

namespace strata {
namespace {

constexpr int64_t kAlignBytes = 64;
constexpr int kSlacks[] = {48, 24, 12, 6};  // instructions that a queue may be early or late; a layer has 3 to 8
constexpr int kSlackPercents[] = {90, 70};  // of the memory that lives fill with slack: the rest is for fragments

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
  // What a checkpoint holds is read after the program: it lives to the end.
  for (size_t index = 0; index < lifetimes.size(); ++index)
    if (program.bookings[index].kind == BookingKind::kCheckpoint && lifetimes[index].first >= 0)
      lifetimes[index].last = static_cast<int>(program.instructions.size()) - 1;
  return lifetimes;
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

// Bytes that one or more bookings have in turn.
struct Slot {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<std::pair<int, int>> busy;  // first and last instruction of each booking, in time order

  bool is_busy(const Lifetime& lifetime) const {
    const auto next = next_after(lifetime);
    return next != busy.end() && next->first <= lifetime.last;
  }
  void occupy(const Lifetime& lifetime) { busy.insert(next_after(lifetime), {lifetime.first, lifetime.last}); }

 private:
  std::vector<std::pair<int, int>>::const_iterator next_after(const Lifetime& lifetime) const {
    return std::partition_point(busy.begin(), busy.end(),
                                [&](const auto& other) { return other.second < lifetime.first; });
  }
};

// The lowest gap of at least `bytes` between the slots (sorted by begin) that are busy in a lifetime.
int64_t lowest_gap(const std::vector<Slot>& slots, const Lifetime& lifetime, int64_t base, int64_t bytes) {
  int64_t offset = base;
  for (const Slot& slot : slots) {
    if (slot.begin - offset >= bytes) break;
    if (slot.end > offset && slot.is_busy(lifetime)) offset = slot.end;
  }
  return offset;
}

// Largest first, each at the lowest address that is free during its whole life.
int64_t pack_transient(Program& program, const std::vector<Lifetime>& lifetimes, Tier tier, int64_t base) {
  std::vector<int> order;
  for (int index = 0; index < static_cast<int>(program.bookings.size()); ++index)
    if (!program.bookings[index].persistent && program.bookings[index].tier == tier && lifetimes[index].first >= 0)
      order.push_back(index);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return program.bookings[a].bytes > program.bookings[b].bytes; });
  int64_t end = base;
  std::vector<Slot> slots;
  for (int index : order) {
    Booking& booking = program.bookings[index];
    const int64_t bytes = round_up(booking.bytes);
    booking.offset = lowest_gap(slots, lifetimes[index], base, bytes);
    end = std::max(end, booking.offset + bytes);
    const auto begins_before = [&](const Slot& slot) {
      return std::pair{slot.begin, slot.end} < std::pair{booking.offset, booking.offset + bytes};
    };
    auto slot = std::partition_point(slots.begin(), slots.end(), begins_before);
    if (slot == slots.end() || slot->begin != booking.offset || slot->end != booking.offset + bytes)
      slot = slots.insert(slot, {booking.offset, booking.offset + bytes, {}});
    slot->occupy(lifetimes[index]);
  }
  return end;
}

// Transient bytes of one tier that are alive at every instruction.
class LiveBytes {
 public:
  LiveBytes(const Program& program, const std::vector<Lifetime>& lifetimes, Tier tier)
      : bytes_(program.instructions.size(), 0) {
    for (size_t index = 0; index < lifetimes.size(); ++index)
      if (is_packed(program.bookings[index], lifetimes[index], tier))
        add(lifetimes[index].first, lifetimes[index].last, round_up(program.bookings[index].bytes));
  }

  static bool is_packed(const Booking& booking, const Lifetime& lifetime, Tier tier) {
    return !booking.persistent && booking.tier == tier && lifetime.first >= 0;
  }

  // Whether as many as `bytes` more stay below the limit from one instruction to another; adds them if so.
  bool add_below(int64_t limit, int first, int last, int64_t bytes) {
    for (int index = first; index <= last; ++index)
      if (bytes_[index] + bytes > limit) return false;
    add(first, last, bytes);
    return true;
  }

 private:
  void add(int first, int last, int64_t bytes) {
    for (int index = first; index <= last; ++index) bytes_[index] += bytes;
  }

  std::vector<int64_t> bytes_;
};

// Lives as they may be when another queue is early or late by some instructions: what it writes first is free before,
// what it uses last stays longer. Then nothing waits for it only because bytes are used again. Every life gets as much
// as keeps the live bytes below the limit.
std::vector<Lifetime> with_slack(const Program& program, std::vector<Lifetime> lifetimes, Tier tier, int64_t limit) {
  LiveBytes live(program, lifetimes, tier);
  const auto num_instructions = static_cast<int>(program.instructions.size());
  const auto on_compute = [](const std::array<int, kNumQueues>& on, int instruction) {
    return on[static_cast<size_t>(Queue::kCompute)] == instruction;
  };
  for (size_t index = 0; index < lifetimes.size(); ++index) {
    Lifetime& lifetime = lifetimes[index];
    if (!LiveBytes::is_packed(program.bookings[index], lifetime, tier)) continue;
    const int64_t bytes = round_up(program.bookings[index].bytes);
    const auto fits = [&](int first, int last) { return live.add_below(limit, first, last, bytes); };
    const int begin = lifetime.first, end = lifetime.last + 1;
    for (const int slack : kSlacks) {
      const int first = std::max(0, begin - slack), last = std::min(num_instructions, end + slack) - 1;
      if (lifetime.first == begin && !on_compute(lifetime.first_on, begin) && fits(first, begin - 1))
        lifetime.first = first;
      if (lifetime.last == end - 1 && !on_compute(lifetime.last_on, end - 1) && fits(end, last)) lifetime.last = last;
    }
  }
  return lifetimes;
}

// With as much slack as takes no more memory.
int64_t pack_with_slack(Program& program, const std::vector<Lifetime>& lifetimes, Tier tier, int64_t base) {
  const int64_t least = pack_transient(program, lifetimes, tier, base);
  for (const int percent : kSlackPercents) {
    const std::vector<Lifetime> longer = with_slack(program, lifetimes, tier, (least - base) * percent / 100);
    const int64_t end = pack_transient(program, longer, tier, base);
    if (end <= least) return end;
  }
  return pack_transient(program, lifetimes, tier, base);
}

// Pairs (earlier, later) of bookings that have the same bytes one directly after the other. Order is transitive, so
// these pairs stand for all that share bytes. A pair whose lives overlap is one, too.
std::vector<std::pair<int, int>> successions(const Program& program, const std::vector<Lifetime>& lifetimes,
                                             Tier tier) {
  std::vector<int> by_first;
  for (int index = 0; index < static_cast<int>(program.bookings.size()); ++index)
    if (program.bookings[index].tier == tier && lifetimes[index].first >= 0 && program.bookings[index].bytes > 0)
      by_first.push_back(index);
  std::stable_sort(by_first.begin(), by_first.end(),
                   [&](int a, int b) { return lifetimes[a].first < lifetimes[b].first; });
  std::map<int64_t, std::pair<int64_t, int>> owners;  // begin -> end and booking; disjoint
  std::vector<std::pair<int, int>> pairs;
  for (int index : by_first) {
    const int64_t begin = program.bookings[index].offset, end = begin + program.bookings[index].bytes;
    auto owner = owners.upper_bound(begin);
    if (owner != owners.begin() && std::prev(owner)->second.first > begin) --owner;
    while (owner != owners.end() && owner->first < end) {
      const auto [owner_begin, rest] = *owner;
      const auto [owner_end, earlier] = rest;
      pairs.push_back({earlier, index});
      owner = owners.erase(owner);
      if (owner_begin < begin) owners[owner_begin] = {begin, earlier};
      if (owner_end > end) owners[end] = {owner_end, earlier};
    }
    owners[begin] = {end, index};
  }
  return pairs;
}

// For every instruction: instructions that must be finished because their bookings' bytes are used again.
std::vector<std::vector<int>> reuse_edges(const Program& program, const std::vector<Lifetime>& lifetimes) {
  std::vector<std::vector<int>> edges(program.instructions.size());
  for (int tier = 0; tier < kNumTiers; ++tier)
    for (const auto& [earlier, later] : successions(program, lifetimes, static_cast<Tier>(tier))) {
      if (program.bookings[earlier].persistent || program.bookings[later].persistent) continue;
      for (int first : lifetimes[later].first_on)
        for (int last : lifetimes[earlier].last_on)
          if (first >= 0 && last >= 0) edges[first].push_back(last);
    }
  return edges;
}

// Adds the waits of one instruction for all of `before` that are not known to be finished, latest first: what the
// others need is then often known already, and no wait is redundant.
void wait_for_all(HappensBefore& order, Instruction& instruction, int index, std::vector<int> before) {
  std::sort(before.begin(), before.end(), std::greater<>());
  for (int earlier : before)
    if (earlier != index && !order.ordered(earlier, index)) instruction.waits.push_back(order.wait_for(earlier));
}

// Instructions that must be finished before this one may use what it uses.
std::vector<int> conflicts_of(const Instruction& instruction, const std::vector<Accesses>& accesses) {
  std::vector<int> before;
  for (const Use& use : instruction.uses)
    for (int earlier : conflicts(accesses[use.booking], use)) before.push_back(earlier);
  return before;
}

// Persistent bookings are alive during the whole program.
std::vector<Lifetime> with_persistent(std::vector<Lifetime> lifetimes, const Program& program) {
  for (size_t index = 0; index < program.bookings.size(); ++index)
    if (program.bookings[index].persistent) {
      lifetimes[index].first = 0;
      lifetimes[index].last = std::max(0, static_cast<int>(program.instructions.size()) - 1);
    }
  return lifetimes;
}

void check_shared_bytes(const Program& program, const HappensBefore& order, Tier tier) {
  const std::vector<Lifetime> lifetimes = with_persistent(find_lifetimes(program), program);
  for (const auto& [earlier, later] : successions(program, lifetimes, tier)) {
    STRATA_CHECK(!lifetimes[earlier].overlaps(lifetimes[later]), "{}: {} and {} share bytes while both live",
                 program.name, program.bookings[earlier].name, program.bookings[later].name);
    for (int first : lifetimes[later].first_on)
      for (int last : lifetimes[earlier].last_on)
        STRATA_CHECK(first < 0 || last < 0 || order.ordered(last, first), "{}: {} may overwrite {}", program.name,
                     program.bookings[later].name, program.bookings[earlier].name);
  }
}

}  // namespace

void synchronize(Program& program) {
  HappensBefore order(program);
  std::vector<Accesses> accesses(program.bookings.size());
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    Instruction& instruction = program.instructions[index];
    order.append(instruction);
    wait_for_all(order, instruction, index, conflicts_of(instruction, accesses));
    for (const Use& use : instruction.uses) record(accesses[use.booking], use, index, instruction.queue);
  }
}

void pack(Program& program) {
  const std::vector<Lifetime> lifetimes = find_lifetimes(program);
  for (int tier = 0; tier < kNumTiers; ++tier) {
    const int64_t persistent = pack_persistent(program, static_cast<Tier>(tier));
    program.arena_bytes[tier] = pack_with_slack(program, lifetimes, static_cast<Tier>(tier), persistent);
  }
  std::vector<std::vector<int>> edges = reuse_edges(program, lifetimes);
  HappensBefore order(program);
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    Instruction& instruction = program.instructions[index];
    for (const Wait& wait : instruction.waits) edges[index].push_back(order.awaited(wait));
    instruction.waits.clear();  // chosen again together with the new edges
    order.append(instruction);
    wait_for_all(order, instruction, index, std::move(edges[index]));
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
      STRATA_CHECK(booking.offset >= 0 &&
                       booking.offset + booking.bytes <= program.arena_bytes[static_cast<size_t>(booking.tier)],
                   "{}: booking {} lies outside the arena", program.name, booking.name);
      STRATA_CHECK(use.access == Access::kWrite || booking.persistent || accesses[use.booking].last_write >= 0,
                   "{}: instruction {} reads {}, which nothing wrote", program.name, index, booking.name);
      for (int before : conflicts(accesses[use.booking], use))
        STRATA_CHECK(before == index || order.ordered(before, index), "{}: instructions {} and {} use {} in no order",
                     program.name, before, index, booking.name);
    }
    for (const Use& use : instruction.uses) record(accesses[use.booking], use, index, instruction.queue);
  }
  for (int tier = 0; tier < kNumTiers; ++tier) check_shared_bytes(program, order, static_cast<Tier>(tier));
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
    const bool alive =
        booking.persistent || (lifetimes[index].first >= 0 && lifetimes[index].first <= result.peak_instruction &&
                               lifetimes[index].last >= result.peak_instruction);
    if (booking.tier == tier && alive) result.bytes[static_cast<size_t>(booking.kind)] += booking.bytes;
  }
  result.arena_bytes = program.arena_bytes[static_cast<size_t>(tier)];
  return result;
}

}  // namespace strata

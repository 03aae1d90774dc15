// SPDX-License-Identifier: Apache-2.0
#include "strata/program/place.h"

#include <map>

namespace strata {
namespace {

bool needs_gather(const ProgramSet& set, int chunk) {
  return set.chunks[chunk].zero == 3 && set.chunks[chunk].num_shards > 1;
}

// Consecutive runs of one layer: its chunks are gathered once for all of them.
struct Visit {
  int begin = 0;
  int end = 0;
  std::map<int, int> slots;  // chunk -> booking
};

std::vector<Visit> find_visits(const Program& program) {
  std::vector<Visit> visits;
  int layer = -1;
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    const Instruction& instruction = program.instructions[index];
    if (instruction.op != Op::kRun) continue;
    if (instruction.layer != layer) visits.push_back({index, index + 1, {}});
    layer = instruction.layer;
    visits.back().end = index + 1;
  }
  return visits;
}

}  // namespace

void place_chunks(Program& program, const ProgramSet& set, const std::vector<int>& chunk_groups) {
  std::map<int, int> chunk_of_booking;
  for (int chunk = 0; chunk < static_cast<int>(set.chunks.size()); ++chunk)
    if (needs_gather(set, chunk)) chunk_of_booking[set.parameter_booking[chunk]] = chunk;
  if (chunk_of_booking.empty()) return;

  std::vector<Visit> visits = find_visits(program);
  std::map<int, std::vector<Instruction>> gathers_before;  // by instruction index
  for (size_t number = 0; number < visits.size(); ++number) {
    Visit& visit = visits[number];
    const int issue = visits[number == 0 ? 0 : number - 1].begin;  // one layer ahead
    for (int index = visit.begin; index < visit.end; ++index) {
      if (program.instructions[index].op != Op::kRun) continue;
      for (Use& use : program.instructions[index].uses) {
        if (use.role != Role::kParameter || !chunk_of_booking.contains(use.booking)) continue;
        const int chunk = chunk_of_booking[use.booking];
        if (!visit.slots.contains(chunk)) {
          const Booking shard = program.bookings[use.booking];
          program.bookings.push_back({set.chunks[chunk].name + ".gathered", shard.bytes * set.chunks[chunk].num_shards,
                                      BookingKind::kGathered, Tier::kDevice, false, -1});
          visit.slots[chunk] = static_cast<int>(program.bookings.size()) - 1;
          Instruction gather{};
          gather.op = Op::kCollective;
          gather.queue = Queue::kDataGroup;
          gather.collective = CollectiveKind::kAllGather;
          gather.group = chunk_groups[chunk];
          gather.chunk = chunk;
          gather.elements = set.chunks[chunk].elements;
          gather.uses = {{use.booking, Access::kRead, Role::kMessage, chunk},
                         {visit.slots[chunk], Access::kWrite, Role::kMessage, chunk}};
          gathers_before[issue].push_back(std::move(gather));
        }
        use.booking = visit.slots[chunk];
      }
    }
  }
  std::vector<Instruction> placed;
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    for (Instruction& gather : gathers_before[index]) placed.push_back(std::move(gather));
    placed.push_back(std::move(program.instructions[index]));
  }
  program.instructions = std::move(placed);
}

}  // namespace strata

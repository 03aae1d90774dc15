// SPDX-License-Identifier: Apache-2.0
#include "strata/program/place.h"

#include <map>

namespace strata {
namespace {

bool needs_gather(const ProgramSet& set, int chunk) {
  return set.chunks[chunk].zero == 3 && set.chunks[chunk].num_shards > 1;
}

// Consecutive runs of one layer.
struct Visit {
  int layer = -1;
  int begin = 0;
  int end = 0;
};

std::vector<Visit> find_visits(const Program& program) {
  std::vector<Visit> visits;
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    const Instruction& instruction = program.instructions[index];
    if (instruction.op != Op::kRun) continue;
    if (visits.empty() || instruction.layer != visits.back().layer) visits.push_back({instruction.layer, index, 0});
    visits.back().end = index + 1;
  }
  return visits;
}

bool is_reduction(const Instruction& instruction) {
  return instruction.op == Op::kCollective && instruction.queue == Queue::kDataGroup && instruction.chunk >= 0 &&
         instruction.collective != CollectiveKind::kAllGather;
}

// Where the gathers for the next visit are issued: at the start of a visit, but before the reductions that end the one
// before. Both are ready then, and the next visit waits for its gathers only.
int issue_of(const Program& program, const Visit& visit) {
  int issue = visit.begin;
  while (issue > 0 && is_reduction(program.instructions[issue - 1])) --issue;
  return issue;
}

class Gathers {
 public:
  Gathers(Program& program, const ProgramSet& set, const std::vector<int>& chunk_groups)
      : program_(program), set_(set), chunk_groups_(chunk_groups) {
    for (int chunk = 0; chunk < static_cast<int>(set.chunks.size()); ++chunk)
      if (needs_gather(set, chunk)) chunk_of_booking_[set.parameter_booking[chunk]] = chunk;
  }

  bool none() const { return chunk_of_booking_.empty(); }
  void leave_unit() { slots_.clear(); }

  // Lets the runs of a visit use slots; gathers that they lack are issued before instruction `issue`.
  void place(const Visit& visit, int issue) {
    for (int index = visit.begin; index < visit.end; ++index) {
      if (program_.instructions[index].op != Op::kRun) continue;
      for (Use& use : program_.instructions[index].uses) {
        if (use.role != Role::kParameter || !chunk_of_booking_.contains(use.booking)) continue;
        const int chunk = chunk_of_booking_[use.booking];
        if (!slots_.contains(chunk)) gather(chunk, use.booking, issue);
        use.booking = slots_[chunk];
      }
    }
  }

  void insert() {
    std::vector<Instruction> placed;
    for (int index = 0; index < static_cast<int>(program_.instructions.size()); ++index) {
      for (Instruction& gather : before_[index]) placed.push_back(std::move(gather));
      placed.push_back(std::move(program_.instructions[index]));
    }
    program_.instructions = std::move(placed);
  }

 private:
  void gather(int chunk, int shard_booking, int issue) {
    const Chunk& entry = set_.chunks[chunk];
    const int64_t bytes = program_.bookings[shard_booking].bytes * entry.num_shards;
    program_.bookings.push_back({entry.name + ".gathered", bytes, BookingKind::kGathered, Tier::kDevice, false, -1});
    slots_[chunk] = static_cast<int>(program_.bookings.size()) - 1;
    Instruction gather{};
    gather.op = Op::kCollective;
    gather.queue = Queue::kDataGroup;
    gather.collective = CollectiveKind::kAllGather;
    gather.group = chunk_groups_[chunk];
    gather.chunk = chunk;
    gather.elements = entry.elements;
    gather.uses = {{shard_booking, Access::kRead, Role::kMessage, chunk},
                   {slots_[chunk], Access::kWrite, Role::kMessage, chunk}};
    before_[issue].push_back(std::move(gather));
  }

  Program& program_;
  const ProgramSet& set_;
  const std::vector<int>& chunk_groups_;
  std::map<int, int> chunk_of_booking_;
  std::map<int, int> slots_;                        // of the unit: chunk -> booking
  std::map<int, std::vector<Instruction>> before_;  // by instruction index
};

}  // namespace

std::vector<int> gather_units(const Plan& plan) {
  std::vector<int> units;
  for (size_t stage = 0; stage < plan.stage_layers.size(); ++stage)
    for (int64_t layer = 0; layer < plan.stage_layers[stage]; ++layer)
      units.push_back(plan.order == PipelineOrder::kBreadthFirst ? static_cast<int>(stage)
                                                                 : static_cast<int>(units.size()));
  return units;
}

void place_chunks(Program& program, const ProgramSet& set, const std::vector<int>& chunk_groups,
                  const std::vector<int>& units) {
  Gathers gathers(program, set, chunk_groups);
  if (gathers.none()) return;
  const std::vector<Visit> visits = find_visits(program);
  for (size_t number = 0; number < visits.size(); ++number) {
    const Visit& before = visits[number == 0 ? 0 : number - 1];
    if (units[visits[number].layer] != units[before.layer]) gathers.leave_unit();
    gathers.place(visits[number], issue_of(program, before));  // one layer ahead
  }
  gathers.insert();
}

}  // namespace strata

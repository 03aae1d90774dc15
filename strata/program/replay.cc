// SPDX-License-Identifier: Apache-2.0
#include "strata/program/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace strata {
namespace {

// Progress of one queue of one rank.
struct QueueState {
  std::vector<const Instruction*> instructions;
  std::vector<double> finish;  // of the ones that are done
  bool done() const { return finish.size() == instructions.size(); }
  const Instruction& next() const { return *instructions[finish.size()]; }
};

class Replay {
 public:
  Replay(std::span<const Program> programs, const Duration& duration)
      : programs_(programs), duration_(duration), queues_(programs.size()) {
    for (size_t rank = 0; rank < programs.size(); ++rank)
      for (const Instruction& instruction : programs[rank].instructions)
        queues_[rank][static_cast<size_t>(instruction.queue)].instructions.push_back(&instruction);
  }

  ReplayResult run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < programs_.size(); ++rank)
        for (int queue = 0; queue < kNumQueues; ++queue)
          while (step(static_cast<int>(rank), queue)) moved = true;
    }
    return result();
  }

 private:
  QueueState& at(int rank, Queue queue) { return queues_[rank][static_cast<size_t>(queue)]; }

  // When the next instruction of a queue could start, or -1 when it still waits for another queue.
  double ready(int rank, const QueueState& state) {
    double time = state.finish.empty() ? 0.0 : state.finish.back();
    for (const Wait& wait : state.next().waits) {
      const QueueState& other = at(rank, wait.queue);
      if (static_cast<int>(other.finish.size()) < wait.count) return -1.0;
      time = std::max(time, other.finish[wait.count - 1]);
    }
    return time;
  }

  // Ranks that must be at a matching instruction for this one to run.
  std::vector<int> partners(int rank, const Instruction& instruction) const {
    if (instruction.op == Op::kCollective) return programs_[rank].groups[instruction.group].ranks;
    if (instruction.op == Op::kSend || instruction.op == Op::kRecv) return {rank, instruction.peer};
    return {rank};
  }

  bool matches(int rank, const Instruction& mine, int other_rank, const Instruction& other) const {
    if (mine.elements != other.elements) return false;
    if (mine.op == Op::kCollective)
      return other.op == Op::kCollective && mine.collective == other.collective &&
             programs_[rank].groups[mine.group].ranks == programs_[other_rank].groups[other.group].ranks;
    const Op expected = mine.op == Op::kSend ? Op::kRecv : Op::kSend;
    return other.op == expected && other.peer == rank && mine.peer == other_rank &&
           mine.micro_batch == other.micro_batch && mine.layer == other.layer;
  }

  bool step(int rank, int queue) {
    QueueState& state = queues_[rank][queue];
    if (state.done()) return false;
    const Instruction& instruction = state.next();
    const std::vector<int> ranks = partners(rank, instruction);
    double start = 0;
    for (int other : ranks) {
      const QueueState& theirs = at(other, instruction.queue);
      if (theirs.done() || (other != rank && !matches(rank, instruction, other, theirs.next()))) return false;
      const double time = ready(other, theirs);
      if (time < 0) return false;
      start = std::max(start, time);
    }
    const double finish = start + duration_(programs_[rank], instruction);
    for (int other : ranks) at(other, instruction.queue).finish.push_back(finish);
    return true;
  }

  ReplayResult result() {
    ReplayResult result;
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      double last = 0;
      for (int queue = 0; queue < kNumQueues; ++queue) {
        const QueueState& state = queues_[rank][queue];
        if (!state.finish.empty()) last = std::max(last, state.finish.back());
        if (!state.done())
          result.blocked.push_back(fmt::format("rank {} {} queue: instruction {} ({}) never starts", rank,
                                               queue_name(static_cast<Queue>(queue)), state.finish.size(),
                                               op_name(state.next().op)));
      }
      result.rank_seconds.push_back(last);
      result.seconds = std::max(result.seconds, last);
    }
    return result;
  }

  std::span<const Program> programs_;
  const Duration& duration_;
  std::vector<std::array<QueueState, kNumQueues>> queues_;
};

}  // namespace

ReplayResult replay(std::span<const Program> programs, const Duration& duration) {
  return Replay(programs, duration).run();
}

double unit_duration(const Program&, const Instruction&) { return 1.0; }

std::vector<std::string> check_world(std::span<const Program> programs) {
  return replay(programs, unit_duration).blocked;
}

}  // namespace strata

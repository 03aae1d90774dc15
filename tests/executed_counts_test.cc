// SPDX-License-Identifier: Apache-2.0
// What the comm of every rank really did in a step, by kind of call and group, is what the compiled programs say, which
// are what the replay times: for every order, ZeRO stage and a few layouts. Ranks are threads here; f32.
#include <gtest/gtest.h>

#include "tests/layout_draw.h"

namespace strata::testing {
namespace {

// Calls, and what this rank sent: elements of collectives (but of all-to-alls, whose rows depend on the documents),
// bytes of messages.
struct Traffic {
  int64_t calls = 0;
  int64_t elements = 0;
  int64_t message_bytes = 0;
  bool operator==(const Traffic&) const = default;
};
void PrintTo(const Traffic& traffic, std::ostream* out) {
  *out << fmt::format("{} calls, {} elements, {} bytes of messages", traffic.calls, traffic.elements,
                      traffic.message_bytes);
}
using Counts = std::map<std::pair<std::string, std::string>, Traffic>;  // by kind and group

Counts executed(const Comm& comm) {
  Counts counts;
  for (const CommCount& count : comm.counts())
    if (count.calls > 0)
      counts[{count.kind, count.group}] = {count.calls, count.kind == "all-to-all" ? 0 : count.elements,
                                           count.group == "peer" ? count.bytes : 0};
  return counts;
}

Counts difference(const Counts& after, const Counts& before) {
  Counts counts;
  for (const auto& [key, all] : after) {
    const Traffic old = before.contains(key) ? before.at(key) : Traffic{};
    if (all != old)
      counts[key] = {all.calls - old.calls, all.elements - old.elements, all.message_bytes - old.message_bytes};
  }
  return counts;
}

// Groups of equal ranks on one queue are one, with the name of the first.
std::string group_name(const ProgramSet& set, const Program& program, const Instruction& instruction) {
  const std::vector<int>& ranks = program.groups[static_cast<size_t>(instruction.group)].ranks;
  for (const Program& other : set.programs)
    for (const Instruction& first : other.instructions)
      if (first.op == Op::kCollective && first.queue == instruction.queue &&
          other.groups[static_cast<size_t>(first.group)].ranks == ranks)
        return other.groups[static_cast<size_t>(first.group)].name;
  return "";
}

// The parts of the others that go to their owners, and this rank's own that goes to the others.
int64_t sent_elements(const Instruction& instruction, int64_t elements, const std::vector<int>& ranks, int rank) {
  const auto size = static_cast<int64_t>(ranks.size());
  const PartRange own = part_range(elements, size, std::ranges::find(ranks, rank) - ranks.begin());
  const int64_t scattered = elements - own.count, gathered = own.count * (size - 1);
  switch (instruction.collective) {
    case CollectiveKind::kAllReduce: return scattered + gathered;
    case CollectiveKind::kReduceScatter: return scattered;
    default: return gathered;
  }
}

void add_collective(const ProgramSet& set, const Program& program, const Instruction& instruction, Counts& counts) {
  if (instruction.collective == CollectiveKind::kRotate) {  // one message to the next, one from the one before
    counts[{"send", "peer"}].calls += 1;
    counts[{"send", "peer"}].message_bytes += program.bookings[static_cast<size_t>(instruction.uses[0].booking)].bytes;
    counts[{"receive", "peer"}].calls += 1;
    return;
  }
  if (instruction.collective == CollectiveKind::kReshard) {
    counts[{"all-to-all", group_name(set, program, instruction)}].calls += 1;
    return;
  }
  static const std::map<CollectiveKind, std::string> kNames = {{CollectiveKind::kAllReduce, "all-reduce"},
                                                               {CollectiveKind::kReduceScatter, "reduce-scatter"},
                                                               {CollectiveKind::kAllGather, "all-gather"}};
  const bool scalars = program.bookings[static_cast<size_t>(instruction.uses[0].booking)].kind == BookingKind::kScalars;
  Traffic& traffic = counts[{kNames.at(instruction.collective), group_name(set, program, instruction)}];
  traffic.calls += 1;
  traffic.elements += sent_elements(instruction, scalars ? 2 : instruction.elements,
                                    program.groups[static_cast<size_t>(instruction.group)].ranks, program.rank);
}

Counts compiled(const ProgramSet& set) {
  const Program& step = *set.find("step");
  Counts counts;
  for (const Instruction& instruction : step.instructions) {
    if (instruction.op == Op::kCollective) add_collective(set, step, instruction, counts);
    if (instruction.op == Op::kRecv) counts[{"receive", "peer"}].calls += 1;
    if (instruction.op != Op::kSend) continue;
    const std::vector<int> whole = {step.rank};
    const std::vector<int>& ranks =
        instruction.group < 0 ? whole : step.groups[static_cast<size_t>(instruction.group)].ranks;
    const PartRange part = part_range(instruction.elements, static_cast<int64_t>(ranks.size()),
                                      std::ranges::find(ranks, step.rank) - ranks.begin());
    counts[{"send", "peer"}].calls += 1;
    counts[{"send", "peer"}].message_bytes += 4 * part.count;
  }
  return counts;
}

// Two documents of 16 targets per micro-batch, which fill it; messages of the tied table are of one piece.
PlanDraw full_draw(const Degrees& degrees, PipelineOrder order, bool tied) {
  constexpr int64_t kAccumulation = 4;
  PlanDraw draw = draw_of({}, 1, tied);
  draw.documents = make_documents(static_cast<int>(2 * kAccumulation * degrees.dp), 16, 97, 1);
  set_degrees(draw, degrees, kAccumulation);
  draw.plan.order = order;
  if (order == PipelineOrder::kGpipe || order == PipelineOrder::kOneForwardOneBackward ||
      order == PipelineOrder::kZeroBubble)
    return draw;
  draw.plan.virtual_stages = 2;
  draw.plan.stage_layers.assign(static_cast<size_t>(2 * degrees.pp), 6 / (2 * degrees.pp));
  draw.plan.stage_layers.back() += 6 % (2 * degrees.pp);
  return draw;
}

int64_t expect_compiled_traffic(const PlanDraw& draw) {
  std::vector<int64_t> calls(static_cast<size_t>(draw.plan.num_ranks));
  run_ranks(static_cast<int>(draw.plan.num_ranks), [&](int rank, Comm& comm) {
    ModelHarness harness(draw.options, draw.plan, comm);
    harness.fill(draw.documents);
    const Counts before = executed(comm);
    harness.step(kLearningRate);
    const Counts counts = difference(executed(comm), before);
    EXPECT_EQ(counts, compiled(harness.programs())) << "rank " << rank;
    for (const auto& [key, traffic] : counts) calls[static_cast<size_t>(rank)] += traffic.calls;
  });
  return *std::ranges::min_element(calls);
}

TEST(ExecutedCounts, AreTheCompiledOnes) {
  for (const PipelineOrder order :
       {PipelineOrder::kGpipe, PipelineOrder::kOneForwardOneBackward, PipelineOrder::kInterleaved,
        PipelineOrder::kBreadthFirst, PipelineOrder::kLayered, PipelineOrder::kZeroBubble})
    for (const int zero : {0, 1, 2, 3})
      for (const Degrees& degrees : {Degrees{1, 2, 2, zero}, Degrees{2, 2, 1, zero}, Degrees{1, 2, 1, zero, 2},
                                     Degrees{2, 1, 2, zero}, Degrees{2, 2, 2, zero}}) {
        if (order == PipelineOrder::kInterleaved && degrees.pp == 1) continue;
        for (const bool variant : {false, true}) {
          PlanDraw draw = full_draw(degrees, order, variant);
          draw.plan.sequence_parallel = variant;
          draw.plan.reduce = variant ? GradientReduce::kEach : GradientReduce::kLast;
          SCOPED_TRACE(
              fmt::format("{} {} tied, sequence parallel, reduce each: {}", order_name(order), draw.text, variant));
          EXPECT_GT(expect_compiled_traffic(draw), 0);
        }
      }
}

TEST(ExecutedCounts, AreTheCompiledOnesBetweenUnequalLayers) {
  for (const PipelineOrder order :
       {PipelineOrder::kOneForwardOneBackward, PipelineOrder::kBreadthFirst, PipelineOrder::kZeroBubble})
    for (const bool sequence_parallel : {false, true}) {
      PlanDraw draw = full_draw({2, 2, 2, 1}, order, true);
      draw.plan.sequence_parallel = sequence_parallel;
      draw.plan.layers[1] = {.tp = 2, .dp = 1, .zero = 3, .cp = 2, .context = ContextExchange::kHeads};
      draw.plan.layers[2] = {.tp = 1, .dp = 4, .zero = 2};
      draw.plan.layers[3] = {.tp = 1, .dp = 2, .zero = 0, .cp = 2};
      draw.plan.layers[4] = {.tp = 4, .dp = 1, .zero = 1};
      SCOPED_TRACE(fmt::format("{} sequence parallel {}", order_name(order), sequence_parallel));
      EXPECT_GT(expect_compiled_traffic(draw), 0);
    }
}

}  // namespace
}  // namespace strata::testing

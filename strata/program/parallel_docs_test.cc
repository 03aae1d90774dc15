// SPDX-License-Identifier: Apache-2.0
// The tables of memory and volume under ZeRO, and of groups, in docs/parallelism.md, made here from compiled programs
// and compared with the file.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "strata/program/testing_docs.h"
#include "strata/program/testing_pipeline.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

// Four data-parallel ranks, two untied blocks of GPT-2's shape, `accumulation` micro-batches.
CompileInput four_ranks(int zero, int64_t accumulation) {
  return tiny_input(tiny_gpt2(2, false), {1, 1, 4, zero}, accumulation);
}

// Bytes of a kind that are alive when the norm is finished, before the first update.
int64_t bytes_at_norm(const Program& program, BookingKind kind) {
  const int at = find_instruction(program, [](const Instruction& instruction) {
    return instruction.op == Op::kScalar && instruction.scalar == ScalarOp::kFinishNorm;
  });
  int64_t bytes = 0;
  for (int booking = 0; booking < static_cast<int>(program.bookings.size()); ++booking) {
    bool before = false, after = false;
    for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index)
      for (const Use& use : program.instructions[static_cast<size_t>(index)].uses) {
        before |= use.booking == booking && index <= at;
        after |= use.booking == booking && index >= at;
      }
    const Booking& one = program.bookings[static_cast<size_t>(booking)];
    if (one.kind == kind && (one.persistent || (before && after))) bytes += one.bytes;
  }
  return bytes;
}

// Parameters + gradients + states, and their sum, per padded element.
std::string compiled_bytes(Precision precision, int zero) {
  CompileInput input = four_ranks(zero, 1);
  input.precision = precision;
  const ProgramSet set = step_of(input);
  std::vector<double> bytes;
  for (BookingKind kind : {BookingKind::kParameter, BookingKind::kGradient, BookingKind::kOptimizer})
    bytes.push_back(static_cast<double>(bytes_at_norm(set.programs.front(), kind)) /
                    static_cast<double>(padded_elements(set)));
  return fmt::format("{} = {}", fmt::join(bytes, " + "), bytes[0] + bytes[1] + bytes[2]);
}

TEST(ParallelDocs, MemoryTableIsUpToDate) {
  const std::vector<std::string> f32 = {"4 + 4 + 8", "4 + 4 + 8 / N", "4 + 4 / N + 8 / N", "4 / N + 4 / N + 8 / N"};
  const std::vector<std::string> bf16 = {"2 + 4 + 12", "2 + 4 + 12 / N", "2 + 4 / N + 12 / N",
                                         "2 / N + 4 / N + 12 / N"};
  std::string table = "| ZeRO | f32 | compiled, N = 4 | bf16 | compiled, N = 4 |\n|---|---|---|---|---|\n";
  for (int zero = 0; zero < 4; ++zero)
    table += fmt::format("| {} | {} | {} | {} | {} |\n", zero, f32[static_cast<size_t>(zero)],
                         compiled_bytes(Precision::kF32, zero), bf16[static_cast<size_t>(zero)],
                         compiled_bytes(Precision::kBF16, zero));
  EXPECT_THAT(parallelism_docs(), HasSubstr(table));
}

// The arenas of a run differ by the states: nothing else depends on whether they are sharded.
TEST(ParallelDocs, ArenasDifferByTheStates) {
  const ProgramSet whole = step_of(four_ranks(0, 1)), sharded = step_of(four_ranks(1, 1));
  EXPECT_EQ(whole.arena_bytes[0] - sharded.arena_bytes[0], 8 * padded_elements(whole) * 3 / 4);
}

// In elements of all chunks, of what a rank sends without the factor (N - 1) / N.
double compiled_volume(int zero, GradientReduce reduce, int64_t accumulation) {
  CompileInput input = four_ranks(zero, accumulation);
  input.plan.reduce = reduce;
  const ProgramSet set = step_of(input);
  int64_t elements = 0;
  for (const Instruction& instruction : set.programs.front().instructions)
    if (instruction.op == Op::kCollective && instruction.chunk >= 0)
      elements += (instruction.collective == CollectiveKind::kAllReduce ? 2 : 1) * instruction.elements;
  return static_cast<double>(elements) / static_cast<double>(padded_elements(set));
}

// The head's and the embedding's chunks, as a part of all.
double share_of_the_ends() {
  const ProgramSet set = step_of(four_ranks(3, 1));
  int64_t ends = 0;
  for (const Chunk& chunk : set.chunks) ends += chunk.name == "embedding" || chunk.name == "head" ? chunk.elements : 0;
  return static_cast<double>(ends) / static_cast<double>(padded_elements(set));
}

struct VolumeRow {
  std::vector<int> stages;
  std::vector<GradientReduce> reduce;
  std::string name, formula;
  std::function<double(double m, double e)> value;
};

std::string text_of(const VolumeRow& row) {
  std::string text = fmt::format("| {} | {} |", row.name, row.formula);
  for (const int64_t m : {1, 4}) {
    const double wanted = row.value(static_cast<double>(m), share_of_the_ends());
    for (const int zero : row.stages)
      for (const GradientReduce reduce : row.reduce)
        EXPECT_NEAR(compiled_volume(zero, reduce, m), wanted, 1e-12) << row.name;
    text += fmt::format(" {:.3g} |", compiled_volume(row.stages[0], row.reduce[0], m));
  }
  return text + "\n";
}

TEST(ParallelDocs, VolumeTableIsUpToDate) {
  const auto last = GradientReduce::kLast, each = GradientReduce::kEach;
  const std::vector<VolumeRow> rows = {
      {{0, 1}, {last, each}, "0, 1 | any", "2", [](double, double) { return 2; }},
      {{2}, {last}, "2 | `last`", "2", [](double, double) { return 2; }},
      {{2}, {each}, "2 | `each`", "m + 1", [](double m, double) { return m + 1; }},
      {{3}, {last}, "3 | `last`", "1 + m (2 - e)", [](double m, double e) { return 1 + m * (2 - e); }},
      {{3}, {each}, "3 | `each`", "m + m (2 - e)", [](double m, double e) { return m + m * (2 - e); }}};
  std::string table = "| ZeRO | `reduce` | volume | compiled, m = 1 | m = 4 |\n|---|---|---|---|---|\n";
  for (const VolumeRow& row : rows) table += text_of(row);
  EXPECT_THAT(parallelism_docs(), HasSubstr(table));
  EXPECT_THAT(parallelism_docs(), HasSubstr(fmt::format("(here e = {:.3f})", share_of_the_ends())));
}

// Reductions of a layer inside a virtual stage, per step, over two data-parallel ranks, for 4 stages and 8
// micro-batches.
int64_t reductions_of_inner_layer(const PipelineShape& shape, int64_t virtual_stages, int zero, GradientReduce reduce) {
  CompileInput input = sharded_input(shape, virtual_stages);
  input.plan.reduce = reduce;
  for (LayerPlan& layer : input.plan.layers) layer.zero = zero;
  input.rank = 2;
  const ProgramSet set = step_of(input);
  return std::ranges::count_if(set.programs.front().instructions, [&](const Instruction& instruction) {
    return instruction.op == Op::kCollective && instruction.chunk >= 0 &&
           instruction.collective != CollectiveKind::kAllGather &&
           set.chunks[static_cast<size_t>(instruction.chunk)].layer == 4;
  });
}

// Whatever the order: once per step with `last` and below ZeRO 2, otherwise once per micro-batch.
TEST(ParallelDocs, OrdersReduceAlike) {
  EXPECT_THAT(parallelism_docs(), HasSubstr("No order changes the number of reductions"));
  for (PipelineOrder order : kAllOrders)
    for (int zero = 0; zero < 4; ++zero) {
      const PipelineShape shape{order, 4, 8};
      const int64_t virtual_stages = is_valid(shape, 1) && order != PipelineOrder::kBreadthFirst ? 1 : 2;
      EXPECT_EQ(reductions_of_inner_layer(shape, virtual_stages, zero, GradientReduce::kLast), 1) << order_name(order);
      EXPECT_EQ(reductions_of_inner_layer(shape, virtual_stages, zero, GradientReduce::kEach), zero >= 2 ? 8 : 1)
          << order_name(order) << " ZeRO " << zero;
    }
}

std::string members(const std::set<std::vector<int>>& groups) {
  std::vector<std::string> texts;
  for (const std::vector<int>& group : groups) texts.push_back(fmt::format("{}", fmt::join(group, " ")));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Two stages x dp 2 x tp 2, tied: the groups of collectives by name, and the pairs that exchange messages by queue.
TEST(ParallelDocs, TableOfEightRanksIsUpToDate) {
  std::map<std::string, std::set<std::vector<int>>> groups, pairs;
  for (const Program& program : compile_programs(tiny_input(tiny_gpt2(1, true), {2, 2, 2, 1}, 2), ProgramKind::kStep))
    for (const Instruction& instruction : program.instructions) {
      const bool tied = instruction.chunk >= 0;
      if (instruction.op == Op::kCollective) {
        const RankGroup& group = program.groups[static_cast<size_t>(instruction.group)];
        groups[group.name].insert(group.ranks);
      }
      if (instruction.op == Op::kSend) pairs[tied ? "tied" : "pipe"].insert({program.rank, instruction.peer});
    }
  for (const char* name : {"tensor", "data", "replica", "world"})
    EXPECT_THAT(parallelism_docs(), HasSubstr(fmt::format("| `{}` | {} |", name, members(groups[name]))));
  EXPECT_EQ(groups.size(), 4u);
  EXPECT_EQ(members(pairs["pipe"]), "0 4, 1 5, 2 6, 3 7, 4 0, 5 1, 6 2, 7 3");
  EXPECT_EQ(pairs["tied"], pairs["pipe"]);
  EXPECT_THAT(parallelism_docs(), HasSubstr("| messages | 0 4, 1 5, 2 6, 3 7 |"));
}

}  // namespace
}  // namespace strata

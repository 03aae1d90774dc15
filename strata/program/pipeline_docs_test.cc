// SPDX-License-Identifier: Apache-2.0
// The picture and the table of docs/parallelism.md, made here and compared with the file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/program/pipeline.h"
#include "strata/program/testing_docs.h"
#include "strata/program/testing_pipeline.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

// One line per stage: 0 to 9 forward of that micro-batch, a to j backward (or its input part), A to J the weight part.
std::string picture_of(PipelineOrder order, int64_t virtual_stages) {
  const PipelineShape shape{order, 4, 4};
  const CompileInput input = pipeline_input(shape, virtual_stages, 1, 0);
  std::string text = fmt::format("{}\n", order_name(order));
  const std::vector<std::vector<TimedItem>> times = pipeline_times(shape, layer_ranges(input.plan));
  for (size_t stage = 0; stage < times.size(); ++stage) {
    std::string line;
    for (const auto& [item, start, end] : times[stage]) {
      line.resize(static_cast<size_t>(start / virtual_stages), '.');
      const char first = item.work == Work::kForward ? '0' : item.work == Work::kBackwardWeight ? 'A' : 'a';
      line.resize(static_cast<size_t>(end / virtual_stages), static_cast<char>(first + item.micro_batch));
    }
    text += fmt::format("  stage {}  {}\n", stage, line);
  }
  return text;
}

TEST(PipelineDocs, PictureIsUpToDate) {
  const std::string picture =
      fmt::format("{}\n{}\n{}\n{}", picture_of(PipelineOrder::kOneForwardOneBackward, 1),
                  picture_of(PipelineOrder::kInterleaved, 2), picture_of(PipelineOrder::kBreadthFirst, 2),
                  picture_of(PipelineOrder::kZeroBubble, 1));
  EXPECT_THAT(parallelism_docs(), HasSubstr("```\n" + picture + "```\n"));
}

struct OrderFormulas {
  PipelineOrder order;
  int64_t virtual_stages;
  std::string bubble, alive, gathers;
};

// Four stages and eight micro-batches.
std::string row_of(const OrderFormulas& formulas) {
  const PipelineShape shape{formulas.order, 4, 8};
  const int64_t v = formulas.virtual_stages;
  const CompileInput input = pipeline_input(shape, v, 1, 0);
  const double bubble = simulated_bubble(formulas.order == PipelineOrder::kLayered ? modular_input(shape, v) : input);
  std::vector<std::string> alive;
  for (const Program& program : compile_programs(input, ProgramKind::kStep))
    alive.push_back(fmt::format("{}", static_cast<double>(most_sets_alive(program, input)) / static_cast<double>(v)));
  return fmt::format("| `{}` | {} | {} | {:.4f} | {} | {} | {} | {} |\n", order_name(formulas.order), v,
                     formulas.bubble, bubble, formulas.alive, fmt::join(alive, ", "), formulas.gathers,
                     gathers_of_inner_layer(shape, v));
}

TEST(PipelineDocs, TableIsUpToDate) {
  const std::vector<OrderFormulas> orders = {
      {PipelineOrder::kGpipe, 1, "(p - 1) / m", "m", "2 m"},
      {PipelineOrder::kOneForwardOneBackward, 1, "(p - 1) / m", "min(p - s, m)", "2 m"},
      {PipelineOrder::kInterleaved, 2, "(p - 1) / (v m)", "min((2 (p - 1 - s) + (v - 1) p + 1) / v, m)", "2 m"},
      {PipelineOrder::kBreadthFirst, 2, "(p - 1) / (v m)", "m", "2"},
      {PipelineOrder::kLayered, 2, "(p - 1) / (v m)", "m", "2"},
      {PipelineOrder::kZeroBubble, 1, "(p - 1) / (3 m)", "min(p, m)", "2 m"}};
  std::string table =
      "| order | v | bubble | simulated | live activations of stage s | simulated, s = 0 to 3 | gathers of a layer | "
      "simulated |\n|---|---|---|---|---|---|---|---|\n";
  for (const OrderFormulas& formulas : orders) table += row_of(formulas);
  EXPECT_THAT(parallelism_docs(), HasSubstr(table));
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/program/pipeline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include "strata/program/testing_pipeline.h"

namespace strata {
namespace {

using ::testing::IsEmpty;

std::string name_of(const PipelineShape& shape, int64_t virtual_stages, int zero) {
  return fmt::format("{} over {} stages x {}, {} micro-batches, zero {}", order_name(shape.order), shape.num_stages,
                     virtual_stages, shape.num_micro_batches, zero);
}

// The programs as if every rank had one queue: instructions strictly in list order.
std::vector<Program> in_list_order(std::vector<Program> programs) {
  for (Program& program : programs)
    for (Instruction& instruction : program.instructions) {
      instruction.queue = Queue::kCompute;
      instruction.waits.clear();
    }
  return programs;
}

// compile() has checked each rank's order and memory. Waits point backwards in the list: if the lists of all ranks run
// to the end one instruction at a time, no set of waits can stop them.
TEST(Pipeline, EveryOrderRunsToTheEnd) {
  for (PipelineOrder order : kAllOrders)
    for (int64_t stages : {1, 2, 3, 4})
      for (int64_t virtual_stages : {1, 2, 3})
        for (int64_t micro_batches : {1, 2, 3, 4, 5, 6, 7, 8, 9})
          for (int zero : {0, 1, 2, 3}) {
            const PipelineShape shape{order, stages, micro_batches};
            if (!is_valid(shape, virtual_stages)) continue;
            const CompileInput input = pipeline_input(shape, virtual_stages, zero == 0 ? 1 : 2, zero);
            const std::vector<Program> programs = compile_programs(input, ProgramKind::kStep);
            EXPECT_THAT(check_world(programs), IsEmpty()) << name_of(shape, virtual_stages, zero);
            EXPECT_THAT(check_world(in_list_order(programs)), IsEmpty()) << name_of(shape, virtual_stages, zero);
          }
}

// Of all orders with at least as many micro-batches as stages. Times are sums of at most 1000 halves and thirds: each
// rounded by 1e-13, far below 1e-9.
TEST(Pipeline, BubblesAreThoseOfTheFormulas) {
  for (PipelineOrder order : kAllOrders)
    for (int64_t stages : {1, 2, 4})
      for (int64_t virtual_stages : {1, 2, 4})
        for (int64_t micro_batches : {4, 5, 8, 12}) {
          const PipelineShape shape{order, stages, micro_batches};
          if (!is_valid(shape, virtual_stages)) continue;
          const bool modular = order == PipelineOrder::kLayered && stages * virtual_stages > 1;
          const CompileInput input =
              modular ? modular_input(shape, virtual_stages) : pipeline_input(shape, virtual_stages, 1, 0);
          EXPECT_NEAR(simulated_bubble(input), bubble_formula(shape, virtual_stages), 1e-9)
              << name_of(shape, virtual_stages, 0);
        }
}

// Messages that take a third of a forward run beside the work. What is left is seen in the replay: 7 to 11 % of the
// time; with every message between the works before and after it, it is 20 to 39 %.
TEST(Pipeline, MessagesRunBesideTheWork) {
  for (const auto& [order, virtual_stages] :
       {std::pair{PipelineOrder::kGpipe, 1}, {PipelineOrder::kInterleaved, 2}, {PipelineOrder::kBreadthFirst, 2}}) {
    const CompileInput input = pipeline_input({order, 4, 16}, virtual_stages, 1, 0);
    const std::vector<Program> programs = compile_programs(input, ProgramKind::kStep);
    const UnitCost cost(input);
    const auto seconds = [&](double message_seconds) {
      const auto is_message = [](const Instruction& instruction) {
        return (instruction.op == Op::kSend || instruction.op == Op::kRecv) && instruction.micro_batch >= 0;
      };
      return replay(programs,
                    [&](const Program& program, const Instruction& instruction) {
                      return is_message(instruction) ? message_seconds : cost(program, instruction);
                    })
          .seconds;
    };
    EXPECT_LT(seconds(0.3) / seconds(0), 1.15) << order_name(order);
  }
}

std::string text_of(const std::vector<StageStep>& steps) {
  std::string text;
  for (const StageStep& step : steps) {
    if (step.action != StageAction::kWork) text += step.action == StageAction::kSend ? "send-" : "receive-";
    text +=
        fmt::format("{}{}.{} ", "FBbw"[static_cast<size_t>(step.item.work)], step.item.micro_batch, step.item.range);
  }
  return text;
}

// Two stages of two virtual stages, breadth first. A receive stands before the work that it runs beside.
TEST(Pipeline, MessagesStandBetweenTheirWork) {
  const PipelineShape shape{PipelineOrder::kBreadthFirst, 2, 2};
  const std::vector<LayerRange> ranges = {{0, 0, 1}, {1, 1, 2}, {0, 2, 3}, {1, 3, 4}};
  EXPECT_EQ(text_of(stage_steps(shape, ranges, 0)),
            "F0.0 send-F0.0 F1.0 send-F1.0 receive-F0.1 receive-F1.1 F0.1 send-F0.1 F1.1 send-F1.1 "
            "receive-B0.1 receive-B1.1 B0.1 send-B0.1 B1.1 send-B1.1 receive-B0.0 receive-B1.0 B0.0 B1.0 ");
  EXPECT_EQ(text_of(stage_steps(shape, ranges, 1)),
            "receive-F0.0 receive-F1.0 F0.0 send-F0.0 F1.0 send-F1.0 receive-F0.1 receive-F1.1 F0.1 F1.1 "
            "B0.1 send-B0.1 B1.1 send-B1.1 receive-B0.0 receive-B1.0 B0.0 send-B0.0 B1.0 send-B1.0 ");
}

TEST(Pipeline, LiveActivationsAreThoseOfTheFormulas) {
  for (PipelineOrder order : kAllOrders)
    for (int64_t stages : {1, 2, 3, 4})
      for (int64_t virtual_stages : {1, 2, 3})
        for (int64_t micro_batches : {1, 2, 4, 6, 8}) {
          const PipelineShape shape{order, stages, micro_batches};
          if (!is_valid(shape, virtual_stages)) continue;
          const CompileInput input = pipeline_input(shape, virtual_stages, 1, 0);
          for (const Program& program : compile_programs(input, ProgramKind::kStep))
            EXPECT_EQ(most_sets_alive(program, input), alive_formula(shape, virtual_stages, program.rank))
                << name_of(shape, virtual_stages, 0) << " stage " << program.rank;
        }
}

// Layer-major orders gather a layer once per direction, whatever the number of micro-batches. Breadth first, the last
// virtual stage of each stage turns from forward to backward without a break; so does the layer at the turn of the
// layered order. Backward of the embedding reads no weights, and the head is forward and backward in one.
TEST(Pipeline, LayerMajorOrdersGatherOncePerDirection) {
  for (int64_t micro_batches : {1, 2, 5}) {
    const auto gathers = [&](PipelineOrder order, int rank) {
      return gathers_by_layer(sharded_input({order, 2, micro_batches}, 2), rank);
    };
    using Counts = std::map<int, int64_t>;
    EXPECT_EQ(gathers(PipelineOrder::kBreadthFirst, 0), (Counts{{0, 1}, {1, 2}, {2, 2}, {6, 1}, {7, 1}, {8, 1}}));
    EXPECT_EQ(gathers(PipelineOrder::kBreadthFirst, 2), (Counts{{3, 2}, {4, 2}, {5, 2}, {9, 1}, {10, 1}, {11, 1}}));
    EXPECT_EQ(gathers(PipelineOrder::kLayered, 0), (Counts{{0, 1}, {1, 2}, {2, 2}, {6, 2}, {7, 2}, {8, 1}}));
    EXPECT_EQ(gathers(PipelineOrder::kLayered, 2), (Counts{{3, 2}, {4, 2}, {5, 2}, {9, 2}, {10, 2}, {11, 1}}));
  }
}

TEST(Pipeline, GathersAreThoseOfTheFormulas) {
  for (PipelineOrder order : kAllOrders)
    for (int64_t micro_batches : {2, 4, 6}) {
      const PipelineShape shape{order, 2, micro_batches};
      const int64_t virtual_stages = is_valid(shape, 2) ? 2 : 1;
      EXPECT_EQ(gathers_of_inner_layer(shape, virtual_stages), gathers_formula(shape)) << name_of(shape, 2, 3);
    }
}

Program first_program(const PipelineShape& shape, int zero) {
  CompileInput input = sharded_input(shape, 2);
  for (LayerPlan& layer : input.plan.layers) layer.zero = zero;
  return compile(input, {ProgramKind::kStep}).programs.front();
}

// Stage 0 of sharded_input: the embedding, attention and MLP of block 0, and the MLP of block 2, attention and MLP of
// block 3. Elements of their chunks at two shards.
constexpr int64_t kEmbedding = 3648, kAttention = 4288, kMlp = 8448;

// A whole gradient lives until it is reduced: all of a stage's, those of one virtual stage, or one.
TEST(Pipeline, LayerMajorOrdersHoldFewWholeGradients) {
  const auto most = [](PipelineOrder order) {
    return most_elements_alive(first_program({order, 2, 4}, 2), ".gradient");
  };
  EXPECT_EQ(most(PipelineOrder::kInterleaved), kEmbedding + kAttention + kMlp + kMlp + kAttention + kMlp);
  EXPECT_EQ(most(PipelineOrder::kBreadthFirst), kMlp + kAttention + kMlp);
  EXPECT_EQ(most(PipelineOrder::kLayered), kMlp);
}

// Gathered weights: two layers, or breadth first a virtual stage.
TEST(Pipeline, GatheredWeightsAreThoseOfTheUnit) {
  const auto most = [](PipelineOrder order) {
    return most_elements_alive(first_program({order, 2, 4}, 3), ".gathered");
  };
  EXPECT_EQ(most(PipelineOrder::kInterleaved), kMlp + kMlp);  // of blocks 0 and 2
  EXPECT_EQ(most(PipelineOrder::kBreadthFirst), kMlp + kAttention + kMlp);
  EXPECT_EQ(most(PipelineOrder::kLayered), kMlp + kMlp);
}

// Evaluation and decoding go once through every layer of the model, in order.
TEST(Pipeline, ForwardProgramsGoThroughVirtualStages) {
  for (PipelineOrder order : {PipelineOrder::kInterleaved, PipelineOrder::kBreadthFirst, PipelineOrder::kLayered})
    for (int64_t stages : {1, 2, 4})
      for (int64_t virtual_stages : {2, 3})
        for (ProgramKind kind : {ProgramKind::kEvaluation, ProgramKind::kDecode}) {
          const PipelineShape shape{order, stages, stages};
          CompileInput input = pipeline_input(shape, virtual_stages, 2, 3);
          input.decode_tokens = 4;
          input.decode_cache_tokens = 16;
          const std::vector<Program> programs = compile_programs(input, kind);
          EXPECT_THAT(check_world(in_list_order(programs)), IsEmpty()) << name_of(shape, virtual_stages, 3);
          std::vector<int> layers;
          for (int64_t stage = 0; stage < stages; ++stage)
            for (const Instruction& instruction : programs[static_cast<size_t>(2 * stage)].instructions)
              if (instruction.op == Op::kRun && instruction.segment == 0) layers.push_back(instruction.layer);
          std::ranges::sort(layers);
          std::vector<int> all(input.plan.layers.size());
          std::iota(all.begin(), all.end(), 0);
          EXPECT_EQ(layers, all);
        }
}

// Tensor-parallel ranks, uneven virtual stages, recomputation.
TEST(Pipeline, OrdersGoWithEverythingElse) {
  for (PipelineOrder order : kAllOrders)
    for (ActivationPolicy policy : {ActivationPolicy::kKeep, ActivationPolicy::kSelective, ActivationPolicy::kFull})
      for (GradientReduce reduce : {GradientReduce::kLast, GradientReduce::kEach})
        for (int zero : {0, 2, 3}) {
          const PipelineShape shape{order, 2, 4};
          const int64_t virtual_stages = is_valid(shape, 2) ? 2 : 1;
          CompileInput input = pipeline_input(shape, virtual_stages, 2, zero);
          input.model = tiny_llama(input.model.num_blocks);
          input.plan.stage_layers.front() -= 1;
          input.plan.stage_layers.back() += 1;
          input.plan.reduce = reduce;
          input.plan.num_ranks *= 2;
          for (LayerPlan& layer : input.plan.layers) layer.tp = 2;
          set_activations(input, policy);
          const std::vector<Program> programs = compile_programs(input, ProgramKind::kStep);
          EXPECT_THAT(check_world(programs), IsEmpty()) << name_of(shape, virtual_stages, zero);
          EXPECT_THAT(check_world(in_list_order(programs)), IsEmpty()) << name_of(shape, virtual_stages, zero);
        }
}

// On stage 1 of 2, the gradient for the stage before leaves before the weight part of its micro-batch.
TEST(Pipeline, ZeroBubbleSendsBeforeItsWeightPart) {
  const CompileInput input = pipeline_input({PipelineOrder::kZeroBubble, 2, 3}, 1, 1, 0);
  const Program program = compile_programs(input, ProgramKind::kStep)[1];
  std::vector<int> sent(3, -1), weighed(3, -1);
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    const Instruction& instruction = program.instructions[static_cast<size_t>(index)];
    if (instruction.op == Op::kSend && instruction.micro_batch >= 0)
      sent[static_cast<size_t>(instruction.micro_batch)] = index;
    if (instruction.op == Op::kRun && instruction.direction == Direction::kBackwardWeight) {
      int& first = weighed[static_cast<size_t>(instruction.micro_batch)];
      if (first < 0) first = index;
    }
  }
  for (size_t micro_batch = 0; micro_batch < 3; ++micro_batch) {
    EXPECT_GE(sent[micro_batch], 0);
    EXPECT_LT(sent[micro_batch], weighed[micro_batch]);
  }
}

// The token table's owner and alias are on one stage when there is one, and on the first and last otherwise.
TEST(Pipeline, TiedTableOverVirtualStages) {
  for (int64_t stages : {1, 2, 3}) {
    const CompileInput input = pipeline_input({PipelineOrder::kBreadthFirst, stages, 2}, 2, 1, 0);
    std::vector<int> peers;
    for (const ProgramSet& set : compile_world(input, {ProgramKind::kStep}))
      for (const Chunk& chunk : set.chunks)
        if (chunk.name.ends_with(".tied")) peers.push_back(chunk.tied_peer_stage);
    const auto last = static_cast<int>(stages) - 1;
    EXPECT_EQ(peers, stages == 1 ? std::vector<int>{-1} : (std::vector<int>{last, 0}));
  }
}

}  // namespace
}  // namespace strata

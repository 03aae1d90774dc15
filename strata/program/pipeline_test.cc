// SPDX-License-Identifier: Apache-2.0
#include "strata/program/pipeline.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "strata/program/replay.h"
#include "strata/program/testing.h"

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

// Work of a virtual stage lies on its blocks' layers in equal parts (embedding and head cost nothing), in one run of
// each per direction: forward 1, backward 2 in its input part, or 1 in either part where they are apart.
class UnitCost {
 public:
  explicit UnitCost(const CompileInput& input) : plan_(input.plan), num_layers_(num_layers(input.model)) {
    int layer = 0;
    for (const int64_t layers : plan_.stage_layers) {
      int costly = 0;
      for (int other = layer; other < layer + layers; ++other) costly += in_block(other);
      share_.insert(share_.end(), static_cast<size_t>(layers), 1.0 / costly);
      layer += static_cast<int>(layers);
    }
  }

  double operator()(const Program&, const Instruction& instruction) const {
    if (instruction.op != Op::kRun || !in_block(instruction.layer) || instruction.segment != 0) return 0;
    const double share = share_[static_cast<size_t>(instruction.layer)];
    const bool apart = plan_.order == PipelineOrder::kZeroBubble;
    switch (instruction.direction) {
      case Direction::kForward: return share;
      case Direction::kBackwardInput: return apart ? share : 2 * share;
      case Direction::kBackwardWeight: return apart ? share : 0;
      default: return 0;
    }
  }

 private:
  bool in_block(int layer) const { return layer > 0 && layer + 1 < num_layers_; }

  const Plan& plan_;
  int64_t num_layers_;
  std::vector<double> share_;
};

// Virtual stages of one layer of a block each, the first with the embedding and the last with the head besides.
CompileInput modular_input(const PipelineShape& shape, int64_t virtual_stages) {
  CompileInput input = pipeline_input(shape, virtual_stages, 1, 0);
  const size_t entries = input.plan.stage_layers.size();
  input = tiny_input(tiny_gpt2(static_cast<int64_t>(entries) / 2, true), {1, shape.num_stages, 1, 0},
                     shape.num_micro_batches);
  input.plan.stage_layers.assign(entries, 1);
  input.plan.stage_layers.front() += 1;
  input.plan.stage_layers.back() += 1;
  input.plan.virtual_stages = virtual_stages;
  input.plan.order = shape.order;
  return input;
}

// Time that a stage waits, as a part of the time it works.
double simulated_bubble(const CompileInput& input) {
  const double busy = 3.0 * static_cast<double>(input.plan.virtual_stages * input.plan.accumulation);
  return replay(compile_programs(input, ProgramKind::kStep), UnitCost(input)).seconds / busy - 1;
}

double bubble_formula(const PipelineShape& shape, int64_t virtual_stages) {
  const auto p = static_cast<double>(shape.num_stages), m = static_cast<double>(shape.num_micro_batches),
             v = static_cast<double>(virtual_stages);
  return (p - 1) / (shape.order == PipelineOrder::kZeroBubble ? 3 * m : v * m);
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

std::string text_of(const std::vector<StageStep>& steps) {
  std::string text;
  for (const StageStep& step : steps) {
    if (step.action != StageAction::kWork) text += step.action == StageAction::kSend ? "send-" : "receive-";
    text +=
        fmt::format("{}{}.{} ", "FBbw"[static_cast<size_t>(step.item.work)], step.item.micro_batch, step.item.range);
  }
  return text;
}

// Two stages of two virtual stages, breadth first. Stage 1 sends what virtual stage 1 made to stage 0 as soon as it is
// there, so stage 0 receives it in the middle of its own forwards through virtual stage 0.
TEST(Pipeline, MessagesStandBetweenTheirWork) {
  const PipelineShape shape{PipelineOrder::kBreadthFirst, 2, 2};
  const std::vector<LayerRange> ranges = {{0, 0, 1}, {1, 1, 2}, {0, 2, 3}, {1, 3, 4}};
  EXPECT_EQ(text_of(stage_steps(shape, ranges, 0)),
            "F0.0 send-F0.0 F1.0 receive-F0.1 send-F1.0 F0.1 send-F0.1 receive-F1.1 F1.1 send-F1.1 "
            "receive-B0.1 B0.1 send-B0.1 receive-B1.1 B1.1 receive-B0.0 send-B1.1 B0.0 receive-B1.0 B1.0 ");
  EXPECT_EQ(text_of(stage_steps(shape, ranges, 1)),
            "receive-F0.0 F0.0 send-F0.0 receive-F1.0 F1.0 receive-F0.1 send-F1.0 F0.1 receive-F1.1 F1.1 "
            "B0.1 send-B0.1 B1.1 receive-B0.0 send-B1.1 B0.0 send-B0.0 receive-B1.0 B1.0 send-B1.0 ");
}

// Sets of kept activations, one per virtual stage and micro-batch, that live at the same time: "stats" of the first
// layer of a block in every virtual stage.
int64_t most_alive(const Program& program, const CompileInput& input) {
  const std::vector<LayerDecl> layers = declare_layers(input.model);
  std::vector<std::string> counted;
  int layer = 0;
  for (const int64_t count : input.plan.stage_layers) {
    counted.push_back(layers[static_cast<size_t>(std::max(layer, 1))].name + ".stats.mb");
    layer += static_cast<int>(count);
  }
  std::vector<int64_t> change(program.instructions.size() + 1);
  for (size_t booking = 0; booking < program.bookings.size(); ++booking) {
    const auto is_it = [&](const std::string& name) { return program.bookings[booking].name.starts_with(name); };
    if (std::ranges::none_of(counted, is_it)) continue;
    int first = -1, last = -1;
    for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index)
      for (const Use& use : program.instructions[static_cast<size_t>(index)].uses)
        if (use.booking == static_cast<int>(booking)) {
          if (first < 0) first = index;
          last = index;
        }
    ++change[static_cast<size_t>(first)];
    --change[static_cast<size_t>(last) + 1];
  }
  int64_t alive = 0, most = 0;
  for (const int64_t by : change) most = std::max(most, alive += by);
  return most;
}

int64_t alive_formula(const PipelineShape& shape, int64_t virtual_stages, int64_t stage) {
  const int64_t p = shape.num_stages, v = virtual_stages, m = shape.num_micro_batches;
  switch (shape.order) {
    case PipelineOrder::kOneForwardOneBackward: return std::min(p - stage, m);
    case PipelineOrder::kZeroBubble: return std::min(p, m);
    case PipelineOrder::kInterleaved: return std::min(2 * (p - 1 - stage) + (v - 1) * p + 1, v * m);
    default: return v * m;
  }
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
            EXPECT_EQ(most_alive(program, input), alive_formula(shape, virtual_stages, program.rank))
                << name_of(shape, virtual_stages, 0) << " stage " << program.rank;
        }
}

// Virtual stages of three layers over two data-parallel ranks at ZeRO 3.
CompileInput sharded_input(const PipelineShape& shape, int64_t virtual_stages) {
  const int64_t entries = shape.num_stages * virtual_stages;
  CompileInput input =
      tiny_input(tiny_gpt2(entries * 3 / 2 - 1, false), {1, shape.num_stages, 2, 3}, shape.num_micro_batches);
  input.plan.stage_layers.assign(static_cast<size_t>(entries), 3);
  input.plan.virtual_stages = virtual_stages;
  input.plan.order = shape.order;
  return input;
}

std::map<int, int64_t> gathers_by_layer(const CompileInput& input, int rank) {
  CompileInput mine = input;
  mine.rank = rank;
  const ProgramSet set = compile(mine, {ProgramKind::kStep});
  std::map<int, int64_t> gathers;
  for (const Instruction& instruction : set.programs.front().instructions)
    if (instruction.op == Op::kCollective && instruction.collective == CollectiveKind::kAllGather)
      ++gathers[set.chunks[static_cast<size_t>(instruction.chunk)].layer];
  return gathers;
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

// A layer inside a stage is gathered for every micro-batch and direction by the orders that go micro-batch by
// micro-batch. The weight part of backward reads no weights.
int64_t gathers_formula(const PipelineShape& shape) {
  const bool layer_major = shape.order == PipelineOrder::kBreadthFirst || shape.order == PipelineOrder::kLayered;
  return layer_major ? 2 : 2 * shape.num_micro_batches;
}

int64_t gathers_of_inner_layer(const PipelineShape& shape, int64_t virtual_stages) {
  return gathers_by_layer(sharded_input(shape, virtual_stages), 2).at(4);  // layers 3, 4, 5 are the first of stage 1
}

TEST(Pipeline, GathersAreThoseOfTheFormulas) {
  for (PipelineOrder order : kAllOrders)
    for (int64_t micro_batches : {2, 4, 6}) {
      const PipelineShape shape{order, 2, micro_batches};
      const int64_t virtual_stages = is_valid(shape, 2) ? 2 : 1;
      EXPECT_EQ(gathers_of_inner_layer(shape, virtual_stages), gathers_formula(shape)) << name_of(shape, 2, 3);
    }
}

// Whole gradients, besides the shards, that live at the same time when they are reduced once.
int64_t whole_gradient_elements(const PipelineShape& shape, int64_t virtual_stages) {
  CompileInput input = sharded_input(shape, virtual_stages);
  for (LayerPlan& layer : input.plan.layers) layer.zero = 2;
  const Program program = compile(input, {ProgramKind::kStep}).programs.front();
  const auto is_whole = [&](int booking) {
    return program.bookings[static_cast<size_t>(booking)].name.ends_with(".gradient");
  };
  std::map<int, std::pair<int, int>> lives;  // by booking
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index)
    for (const Use& use : program.instructions[static_cast<size_t>(index)].uses)
      if (is_whole(use.booking)) lives.insert({use.booking, {index, index}}).first->second.second = index;
  int64_t most = 0;
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index) {
    int64_t bytes = 0;
    for (const auto& [booking, life] : lives)
      if (life.first <= index && index <= life.second) bytes += program.bookings[static_cast<size_t>(booking)].bytes;
    most = std::max(most, bytes);
  }
  return most / 4;
}

// Stage 0 has the embedding (3648 elements at two shards), attention (4288) and MLP (8448) of block 0, and the MLP of
// block 2, attention and MLP of block 3. A whole gradient lives until it is reduced: all of a stage's, those of one
// virtual stage, or one.
TEST(Pipeline, LayerMajorOrdersHoldFewWholeGradients) {
  constexpr int64_t kEmbedding = 3648, kAttention = 4288, kMlp = 8448;
  EXPECT_EQ(whole_gradient_elements({PipelineOrder::kInterleaved, 2, 4}, 2),
            kEmbedding + kAttention + kMlp + kMlp + kAttention + kMlp);
  EXPECT_EQ(whole_gradient_elements({PipelineOrder::kBreadthFirst, 2, 4}, 2), kMlp + kAttention + kMlp);
  EXPECT_EQ(whole_gradient_elements({PipelineOrder::kLayered, 2, 4}, 2), kMlp);
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

// SPDX-License-Identifier: Apache-2.0
// What a pipeline costs, by formula and measured on the compiled programs of all ranks. Included by *_test.cc only.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "strata/program/replay.h"
#include "strata/program/testing.h"

namespace strata {

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
inline CompileInput modular_input(const PipelineShape& shape, int64_t virtual_stages) {
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
inline double simulated_bubble(const CompileInput& input) {
  const double busy = 3.0 * static_cast<double>(input.plan.virtual_stages * input.plan.accumulation);
  return replay(compile_programs(input, ProgramKind::kStep), UnitCost(input)).seconds / busy - 1;
}

inline double bubble_formula(const PipelineShape& shape, int64_t virtual_stages) {
  const auto p = static_cast<double>(shape.num_stages), m = static_cast<double>(shape.num_micro_batches),
             v = static_cast<double>(virtual_stages);
  return (p - 1) / (shape.order == PipelineOrder::kZeroBubble ? 3 * m : v * m);
}

// The largest sum of `size` over bookings that live at the same time, from first use to last.
inline int64_t most_alive(const Program& program, const std::function<int64_t(const Booking&)>& size) {
  std::vector<int> first(program.bookings.size(), -1), last(program.bookings.size(), -1);
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index)
    for (const Use& use : program.instructions[static_cast<size_t>(index)].uses) {
      if (first[static_cast<size_t>(use.booking)] < 0) first[static_cast<size_t>(use.booking)] = index;
      last[static_cast<size_t>(use.booking)] = index;
    }
  std::vector<int64_t> change(program.instructions.size() + 1);
  for (size_t booking = 0; booking < program.bookings.size(); ++booking) {
    if (first[booking] < 0) continue;
    change[static_cast<size_t>(first[booking])] += size(program.bookings[booking]);
    change[static_cast<size_t>(last[booking]) + 1] -= size(program.bookings[booking]);
  }
  int64_t alive = 0, most = 0;
  for (const int64_t by : change) most = std::max(most, alive += by);
  return most;
}

// Bytes of the bookings of a name's end, in f32 elements.
inline int64_t most_elements_alive(const Program& program, const std::string& name_end) {
  return most_alive(program, [&](const Booking& booking) {
    return booking.name.ends_with(name_end) ? booking.bytes / 4 : int64_t{0};
  });
}

// Sets of kept activations, one per virtual stage and micro-batch, that live at the same time: "stats" of the first
// layer of a block in every virtual stage.
inline int64_t most_sets_alive(const Program& program, const CompileInput& input) {
  const std::vector<LayerDecl> layers = declare_layers(input.model);
  std::vector<std::string> counted;
  int layer = 0;
  for (const int64_t count : input.plan.stage_layers) {
    counted.push_back(layers[static_cast<size_t>(std::max(layer, 1))].name + ".stats.mb");
    layer += static_cast<int>(count);
  }
  return most_alive(program, [&](const Booking& booking) {
    return std::ranges::count_if(counted, [&](const std::string& name) { return booking.name.starts_with(name); });
  });
}

inline int64_t alive_formula(const PipelineShape& shape, int64_t virtual_stages, int64_t stage) {
  const int64_t p = shape.num_stages, v = virtual_stages, m = shape.num_micro_batches;
  switch (shape.order) {
    case PipelineOrder::kOneForwardOneBackward: return std::min(p - stage, m);
    case PipelineOrder::kZeroBubble: return std::min(p, m);
    case PipelineOrder::kInterleaved: return std::min(2 * (p - 1 - stage) + (v - 1) * p + 1, v * m);
    default: return v * m;
  }
}

// Virtual stages of three layers over two data-parallel ranks at ZeRO 3.
inline CompileInput sharded_input(const PipelineShape& shape, int64_t virtual_stages) {
  const int64_t entries = shape.num_stages * virtual_stages;
  CompileInput input =
      tiny_input(tiny_gpt2(entries * 3 / 2 - 1, false), {1, shape.num_stages, 2, 3}, shape.num_micro_batches);
  input.plan.stage_layers.assign(static_cast<size_t>(entries), 3);
  input.plan.virtual_stages = virtual_stages;
  input.plan.order = shape.order;
  return input;
}

inline std::map<int, int64_t> gathers_by_layer(const CompileInput& input, int rank) {
  CompileInput mine = input;
  mine.rank = rank;
  const ProgramSet set = compile(mine, {ProgramKind::kStep});
  std::map<int, int64_t> gathers;
  for (const Instruction& instruction : set.programs.front().instructions)
    if (instruction.op == Op::kCollective && instruction.collective == CollectiveKind::kAllGather)
      ++gathers[set.chunks[static_cast<size_t>(instruction.chunk)].layer];
  return gathers;
}

// A layer inside a stage is gathered for every micro-batch and direction by the orders that go micro-batch by
// micro-batch. The weight part of backward reads no weights.
inline int64_t gathers_formula(const PipelineShape& shape) {
  const bool layer_major = shape.order == PipelineOrder::kBreadthFirst || shape.order == PipelineOrder::kLayered;
  return layer_major ? 2 : 2 * shape.num_micro_batches;
}

inline int64_t gathers_of_inner_layer(const PipelineShape& shape, int64_t virtual_stages) {
  return gathers_by_layer(sharded_input(shape, virtual_stages), 2).at(4);  // layers 3, 4, 5 are the first of stage 1
}

}  // namespace strata

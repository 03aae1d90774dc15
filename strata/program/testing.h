// SPDX-License-Identifier: Apache-2.0
// Models and plans small enough to compute by hand, and programs of all ranks. Included by *_test.cc only.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "strata/base/error.h"
#include "strata/program/chunks.h"
#include "strata/program/compile.h"
#include "strata/program/schedule.h"
#include "strata/spec/testing.h"

namespace strata {

inline ModelSpec tiny_llama(int64_t num_blocks) { return llama_shaped(tiny_gpt2(num_blocks, false), 2, 64); }

struct Degrees {
  int64_t tp = 1, pp = 1, dp = 1;
  int zero = 0;
  int64_t cp = 1;
};

// Two samples of 16 tokens per micro-batch; the last stage takes the layers that do not divide.
inline CompileInput tiny_input(const ModelSpec& model, const Degrees& degrees, int64_t accumulation) {
  CompileInput input;
  input.model = model;
  input.seq = 16;
  input.plan = single_rank_plan(model, ActivationPolicy::kKeep, 2, accumulation, 1);
  input.plan.num_ranks = degrees.tp * degrees.pp * degrees.dp * degrees.cp;
  const int64_t layers = num_layers(model);
  input.plan.stage_layers.assign(static_cast<size_t>(degrees.pp), layers / degrees.pp);
  input.plan.stage_layers.back() += layers % degrees.pp;
  for (LayerPlan& layer : input.plan.layers) {
    layer.tp = degrees.tp;
    layer.dp = degrees.dp;
    layer.cp = degrees.cp;
    layer.zero = degrees.zero;
  }
  return input;
}

// A pipeline of an order over virtual stages of two layers (one of four).
inline CompileInput pipeline_input(const PipelineShape& shape, int64_t virtual_stages, int64_t dp, int zero) {
  const int64_t entries = shape.num_stages * virtual_stages;
  const int64_t blocks = std::max<int64_t>(entries - 1, 1);
  CompileInput input = tiny_input(tiny_gpt2(blocks, true), {1, 1, dp, zero}, shape.num_micro_batches);
  input.plan.stage_layers.assign(static_cast<size_t>(entries), num_layers(input.model) / entries);
  input.plan.virtual_stages = virtual_stages;
  input.plan.order = shape.order;
  input.plan.num_ranks = shape.num_stages * dp;
  return input;
}

// Whether a plan may have this order and number of virtual stages.
inline bool is_valid(const PipelineShape& shape, int64_t virtual_stages) {
  switch (shape.order) {
    case PipelineOrder::kBreadthFirst:
    case PipelineOrder::kLayered: return true;
    case PipelineOrder::kInterleaved: return virtual_stages > 1 && shape.num_micro_batches % shape.num_stages == 0;
    default: return virtual_stages == 1;
  }
}

inline constexpr std::array kAllOrders = {PipelineOrder::kGpipe,       PipelineOrder::kOneForwardOneBackward,
                                          PipelineOrder::kInterleaved, PipelineOrder::kBreadthFirst,
                                          PipelineOrder::kLayered,     PipelineOrder::kZeroBubble};

inline void set_activations(CompileInput& input, ActivationPolicy policy) {
  for (LayerPlan& layer : input.plan.layers) layer.activations = policy;
}

inline std::vector<ProgramSet> compile_world(CompileInput input, const std::vector<ProgramKind>& kinds) {
  std::vector<ProgramSet> sets;
  for (int rank = 0; rank < input.plan.num_ranks; ++rank) {
    input.rank = rank;
    sets.push_back(compile(input, kinds));
  }
  return sets;
}

inline std::vector<Program> compile_programs(const CompileInput& input, ProgramKind kind) {
  std::vector<Program> programs;
  for (ProgramSet& set : compile_world(input, {kind})) programs.push_back(std::move(set.programs.front()));
  return programs;
}

inline ProgramSet step_of(const CompileInput& input) { return compile(input, {ProgramKind::kStep}); }

inline int64_t padded_elements(const ProgramSet& set) {
  int64_t sum = 0;
  for (const Chunk& chunk : set.chunks) sum += chunk.elements;
  return sum;
}

template <typename Predicate>
inline int find_instruction(const Program& program, Predicate&& predicate) {
  for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index)
    if (predicate(program.instructions[static_cast<size_t>(index)])) return index;
  STRATA_CHECK(false, "no such instruction in {}", program.name);
  return -1;
}

}  // namespace strata

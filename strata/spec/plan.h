// SPDX-License-Identifier: Apache-2.0
// Where and in which order, never what: any plan for a config gives the same training. Plain data, JSON both ways
// (docs/formats/plan.md), edited by people, stored with the run.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "strata/spec/model_spec.h"

namespace strata {

// What a layer keeps from forward to backward: all that backward reads, what is costly to compute again, its input, or
// its part of the input, which the tensor-parallel ranks share out (ZeRO-R's partitioned activation checkpointing).
enum class ActivationPolicy { kKeep, kSelective, kFull, kPartitioned };
enum class GradientReduce { kLast, kEach };  // once after the last micro-batch, or into a shard every micro-batch

// In which order a stage runs the micro-batches of a step, forward and backward (docs/parallelism.md).
enum class PipelineOrder { kGpipe, kOneForwardOneBackward, kInterleaved, kBreadthFirst, kLayered, kZeroBubble };

// How attention reaches the tokens of the other context-parallel ranks: their keys and values pass by around a ring, or
// the ranks change from sharing tokens to sharing heads and back (all-to-all; Jacobs et al., 2023).
enum class ContextExchange { kRing, kHeads };

// The strategy of one layer. tp * cp * dp = ranks of a stage for every layer; how a layer's factors differ from its
// neighbours' the compiler evens out by moving activations.
struct LayerPlan {
  int64_t tp = 1;
  int64_t dp = 1;
  int zero = 0;  // 0 replicate, 1 shard optimizer state, 2 and gradients, 3 and parameters
  ActivationPolicy activations = ActivationPolicy::kKeep;
  int64_t cp = 1;                                    // ranks that share the tokens of every sequence
  ContextExchange context = ContextExchange::kRing;  // of attention with cp > 1
  bool operator==(const LayerPlan&) const = default;
};

struct Plan {
  int64_t num_ranks = 1;
  // Layers of the virtual stages in model order; size = stages * virtual_stages. Stage s of p has the virtual stages
  // s, s + p, s + 2p, ...
  std::vector<int64_t> stage_layers;
  int64_t virtual_stages = 1;  // of every stage
  PipelineOrder order = PipelineOrder::kOneForwardOneBackward;
  std::vector<LayerPlan> layers;  // one per layer: embedding, (attention, mlp) per block, head
  int64_t micro_batch = 1;        // samples per micro-batch and data-parallel rank (of cp x tp ranks) of layer 0
  int64_t accumulation = 1;       // micro-batches per step
  GradientReduce reduce = GradientReduce::kLast;
  int64_t head_tile = 0;  // tokens whose logits exist at a time; 0: about 64 MiB of logits
  int64_t threads = 1;    // compute threads of a rank
  // Between layers each tensor-parallel rank holds its part of an activation instead of the whole (Korthikanti et al.,
  // 2022).
  bool sequence_parallel = false;
  bool overlap = true;  // communication runs beside the computation, on threads of its own
  bool operator==(const Plan&) const = default;
};

// Pipeline stages of a valid plan.
inline int64_t num_stages(const Plan& plan) {
  return static_cast<int64_t>(plan.stage_layers.size()) / plan.virtual_stages;
}

// Tokens whose logits the head computes at a time, of a micro-batch of this many.
int64_t head_tile_tokens(const Plan& plan, const ModelSpec& model, int64_t tokens);

// Whether the core of this layer (attention) shares heads instead of tokens over its context-parallel ranks.
inline bool shares_heads(const LayerPlan& layer) { return layer.cp > 1 && layer.context == ContextExchange::kHeads; }

// Name of an order in plan.json.
const std::string& order_name(PipelineOrder order);

// "2 stages x dp 1 x cp 1 x tp 2, ZeRO 1", or layer by layer where they differ.
std::string describe_ranks(const Plan& plan);

// Layers of a model in order: embedding, then attention and MLP of every block, then head.
inline int64_t num_layers(const ModelSpec& model) { return 2 + 2 * model.num_blocks; }

// The plan of one rank with everything resident and one activation policy everywhere.
Plan single_rank_plan(const ModelSpec& model, ActivationPolicy activations, int64_t micro_batch, int64_t accumulation,
                      int64_t threads);

// Every number a plan must satisfy for this model; throws Error with both numbers and what would work
// (6 heads over tp 4, 5 layers in stages of 2 + 2, 5 ranks for tp 2 x pp 2, 6 interleaved micro-batches over 4 stages).
void validate_plan(const Plan& plan, const ModelSpec& model);

nlohmann::json to_json(const Plan& plan);
// Unknown keys are errors.
Plan parse_plan(const nlohmann::json& json, const std::string& where);
Plan read_plan(const std::string& path);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/program/chunks.h"

#include <algorithm>

#include "strata/base/error.h"

namespace strata {
namespace {

constexpr int64_t kAlignElements = 32;  // 64 bytes of bf16: every tensor starts on a cache line in both precisions

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Tensors of a layer that are sharded over the same ranks and travel together.
// "Data" ranks are dp x cp: both hold the same parameters.
enum class ChunkClass { kOverDp, kOverDpAndTp, kTied };

ChunkClass class_of(const LayerDecl& layer, int index, bool tied_model, int64_t tp) {
  if (tied_model && (index == layer.tied_parameter || (layer.kind == LayerKind::kEmbedding && index == 0)))
    return ChunkClass::kTied;
  return layer.parameters[index].partial_over_tp && tp > 1 ? ChunkClass::kOverDpAndTp : ChunkClass::kOverDp;
}

// Shape of a parameter on a tensor-parallel rank.
int64_t local_rows(const ParameterDecl& parameter, const LayerPlace& place) {
  const bool split = parameter.partition == Partition::kRows || parameter.partition == Partition::kTableRows;
  return split ? share_of(parameter.rows, place.tp, place.tensor).count : parameter.rows;
}
int64_t local_cols(const ParameterDecl& parameter, const LayerPlace& place) {
  return parameter.partition == Partition::kCols ? parameter.cols / place.tp : parameter.cols;
}

Chunk make_chunk(const LayerDecl& layer, int layer_index, const LayerPlan& strategy, const LayerPlace& place,
                 ChunkClass wanted, bool trainable, bool tied_model) {
  Chunk chunk{};
  chunk.trainable = trainable;
  chunk.layer = layer_index;
  chunk.zero = strategy.zero;
  chunk.over_tp = wanted == ChunkClass::kOverDpAndTp;
  const int64_t replicas = place.dp * place.cp, replica = place.data * place.cp + place.context;
  chunk.num_shards = chunk.over_tp ? replicas * place.tp : replicas;
  chunk.shard = chunk.over_tp ? replica * place.tp + place.tensor : replica;
  for (int index = 0; index < static_cast<int>(layer.parameters.size()); ++index) {
    if (class_of(layer, index, tied_model, place.tp) != wanted) continue;
    const ParameterDecl& parameter = layer.parameters[index];
    if (parameter.frozen == trainable) continue;
    chunk.tensors.push_back(
        {layer_index, index, chunk.elements, local_rows(parameter, place), local_cols(parameter, place)});
    chunk.elements = round_up(chunk.elements + chunk.tensors.back().num_elements(), kAlignElements);
  }
  chunk.elements = round_up(chunk.elements, kAlignElements * chunk.num_shards);
  chunk.name = layer.name;
  if (wanted == ChunkClass::kOverDpAndTp) chunk.name += ".replicated";
  if (wanted == ChunkClass::kTied) chunk.name += ".tied";
  if (!trainable) chunk.name += ".frozen";
  return chunk;
}

}  // namespace

std::vector<LayerRange> layer_ranges(const Plan& plan) {
  const int64_t stages = num_stages(plan);
  std::vector<LayerRange> ranges;
  int begin = 0;
  for (size_t index = 0; index < plan.stage_layers.size(); ++index) {
    const int end = begin + static_cast<int>(plan.stage_layers[index]);
    const int step = plan.order == PipelineOrder::kLayered ? 1 : end - begin;
    for (; begin < end; begin += step) ranges.push_back({static_cast<int64_t>(index) % stages, begin, begin + step});
  }
  return ranges;
}

bool RankPlace::holds(int layer) const {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const LayerRange& range) { return range.first_layer <= layer && layer < range.end_layer; });
}

RankPlace place_of_rank(const Plan& plan, int rank) {
  RankPlace place{};
  const LayerPlan& any = plan.layers.front();
  place.stages = num_stages(plan);
  place.stage_ranks = any.tp * any.cp * any.dp;
  place.stage = rank / place.stage_ranks;
  place.index = rank % place.stage_ranks;
  for (const LayerPlan& layer : plan.layers)
    place.layers.push_back({place.index / (layer.tp * layer.cp), place.index / layer.tp % layer.cp,
                            place.index % layer.tp, layer.tp, layer.cp, layer.dp, rank - place.index});
  for (const LayerRange& range : layer_ranges(plan))
    if (range.stage == place.stage) place.ranges.push_back(range);
  return place;
}

std::vector<Chunk> make_chunks(const std::vector<LayerDecl>& layers, const Plan& plan, int rank) {
  const RankPlace place = place_of_rank(plan, rank);
  const bool tied_model = layers.back().tied_parameter >= 0;
  const int64_t last_stage = place.stages - 1;
  std::vector<Chunk> chunks;
  for (int index = 0; index < static_cast<int>(layers.size()); ++index) {
    if (!place.holds(index)) continue;
    const LayerDecl& layer = layers[index];
    for (ChunkClass wanted : {ChunkClass::kTied, ChunkClass::kOverDp, ChunkClass::kOverDpAndTp}) {
      const bool borrowed = wanted == ChunkClass::kTied && layer.kind == LayerKind::kHead;
      if (borrowed && place.holds(0)) continue;  // the owner is on this stage
      // The alias is sharded as its owner is: they exchange gradients and values shard by shard.
      for (bool trainable : {true, false}) {
        Chunk chunk = make_chunk(layer, index, plan.layers[borrowed ? 0 : index], place.layers[index], wanted,
                                 trainable, tied_model);
        if (chunk.tensors.empty()) continue;
        chunk.tied_alias = borrowed;
        if (wanted == ChunkClass::kTied && last_stage > 0)
          chunk.tied_peer_stage = static_cast<int>(borrowed ? 0 : last_stage);
        chunks.push_back(std::move(chunk));
      }
    }
  }
  return chunks;
}

}  // namespace strata

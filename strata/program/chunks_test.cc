// SPDX-License-Identifier: Apache-2.0
#include "strata/program/chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "strata/base/testing.h"
#include "strata/program/testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Chunk> chunks_of(const CompileInput& input, int rank) {
  return make_chunks(declare_layers(input.model), input.plan, rank);
}

std::vector<std::string> names_of(const std::vector<Chunk>& chunks) {
  std::vector<std::string> names;
  for (const Chunk& chunk : chunks) names.push_back(chunk.name);
  return names;
}

const Chunk& named(const std::vector<Chunk>& chunks, const std::string& name) {
  for (const Chunk& chunk : chunks)
    if (chunk.name == name) return chunk;
  STRATA_CHECK(false, "no chunk {}", name);
  return chunks.front();
}

TEST(RankPlace, TensorIsInnermostAndStageOutermost) {
  const CompileInput input = tiny_input(tiny_gpt2(2, false), {.tp = 2, .pp = 2, .dp = 3, .cp = 2}, 1);
  for (int rank = 0; rank < 24; ++rank) {
    const RankPlace place = place_of_rank(input.plan, rank);
    const LayerPlace& layer = place.layers[0];
    EXPECT_EQ(rank, ((place.stage * 3 + layer.data) * 2 + layer.context) * 2 + layer.tensor);
    EXPECT_EQ(layer.rank(layer.data, layer.context, layer.tensor), rank);
    EXPECT_EQ(place.rank_of_stage(place.stage), rank);
    ASSERT_EQ(place.ranges.size(), 1u);
    EXPECT_EQ(place.ranges[0].first_layer, place.stage * 3);
    EXPECT_EQ(place.ranges[0].end_layer, place.stage * 3 + 3);
  }
}

std::vector<std::pair<int, int>> ranges_of(const Plan& plan, int rank) {
  std::vector<std::pair<int, int>> ranges;
  for (const LayerRange& range : place_of_rank(plan, rank).ranges)
    ranges.push_back({range.first_layer, range.end_layer});
  return ranges;
}

// Virtual stages are dealt out to the stages in turn; the layered order takes their layers one by one.
TEST(RankPlace, HoldsItsVirtualStages) {
  CompileInput input = tiny_input(tiny_gpt2(3, false), {1, 2, 2, 0}, 1);
  input.plan.stage_layers = {3, 1, 2, 2};
  input.plan.virtual_stages = 2;
  input.plan.order = PipelineOrder::kBreadthFirst;
  EXPECT_THAT(ranges_of(input.plan, 1), ElementsAre(std::pair(0, 3), std::pair(4, 6)));
  EXPECT_THAT(ranges_of(input.plan, 2), ElementsAre(std::pair(3, 4), std::pair(6, 8)));
  const RankPlace place = place_of_rank(input.plan, 0);
  std::vector<int> held;
  for (int layer = -1; layer <= 8; ++layer)
    if (place.holds(layer)) held.push_back(layer);
  EXPECT_THAT(held, ElementsAre(0, 1, 2, 4, 5));
  input.plan.order = PipelineOrder::kLayered;
  EXPECT_THAT(ranges_of(input.plan, 2), ElementsAre(std::pair(3, 4), std::pair(6, 7), std::pair(7, 8)));
}

TEST(RankPlace, DiffersBetweenLayers) {
  CompileInput input = tiny_input(tiny_gpt2(2, false), {.tp = 2, .pp = 2, .dp = 2}, 1);
  input.plan.layers[3] = {.tp = 1, .dp = 2, .cp = 2};
  const RankPlace place = place_of_rank(input.plan, 6);  // the third of the second stage
  EXPECT_EQ(place.layers[2], (LayerPlace{.data = 1, .context = 0, .tensor = 0, .tp = 2, .dp = 2, .first_rank = 4}));
  EXPECT_EQ(place.layers[3], (LayerPlace{.data = 1, .context = 0, .tensor = 0, .cp = 2, .dp = 2, .first_rank = 4}));
  EXPECT_EQ(place.layers[3].rank(0, 1, 0), 5);
}

// Without tensor parallelism a layer is one chunk. Attention: norm 32 + 32, qkv 96 x 32 + 96, output 32 x 32 + 32:
// every tensor begins at a multiple of 32 elements, the whole is padded to one of 32 x 3 shards.
TEST(Chunks, TensorsAreAlignedAndTheChunkDividesIntoShards) {
  const std::vector<Chunk> chunks = chunks_of(tiny_input(tiny_gpt2(1, false), {1, 1, 3, 2}, 1), 1);
  EXPECT_THAT(names_of(chunks), ElementsAre("embedding", "attention.0", "mlp.0", "head"));
  const Chunk& attention = chunks[1];
  std::vector<int64_t> offsets;
  for (const ChunkTensor& tensor : attention.tensors) offsets.push_back(tensor.offset);
  EXPECT_THAT(offsets, ElementsAre(0, 32, 64, 64 + 3072, 64 + 3072 + 96, 64 + 3072 + 96 + 1024));
  EXPECT_EQ(attention.tensors.back().offset + attention.tensors.back().num_elements(), 4288);
  EXPECT_EQ(attention.elements, 4320);  // 45 x 96
  EXPECT_EQ(attention.num_shards, 3);
  EXPECT_EQ(attention.shard, 1);
  EXPECT_EQ(attention.shard_begin(), 1440);
  EXPECT_EQ(attention.owned_begin(), 1440);
  EXPECT_EQ(attention.owned_elements(), 1440);
}

TEST(Chunks, ZeroStageZeroOwnsEverything) {
  const std::vector<Chunk> chunks = chunks_of(tiny_input(tiny_gpt2(1, false), {1, 1, 3, 0}, 1), 1);
  EXPECT_EQ(chunks[1].owned_begin(), 0);
  EXPECT_EQ(chunks[1].owned_elements(), chunks[1].elements);
}

// Over two tensor-parallel ranks the norms (2 x 32) and the output bias (32) are whole on both, their gradients
// partial: a chunk of their own over all four replicas. The rest is halved and has two replicas.
TEST(Chunks, TensorParallelPartsAndReplicas) {
  const CompileInput input = tiny_input(tiny_gpt2(1, false), {2, 1, 2, 1}, 1);
  const std::vector<Chunk> chunks = chunks_of(input, 3);
  EXPECT_THAT(names_of(chunks), ElementsAre("embedding", "attention.0", "attention.0.replicated", "mlp.0",
                                            "mlp.0.replicated", "head", "head.replicated"));
  EXPECT_EQ(chunks[1].tensors[0].rows, 48);  // qkv weight by rows
  EXPECT_EQ(chunks[1].tensors[1].cols, 48);  // qkv bias
  EXPECT_EQ(chunks[1].tensors[2].cols, 16);  // output weight by columns
  EXPECT_EQ(chunks[1].num_shards, 2);
  EXPECT_EQ(chunks[1].shard, 1);
  EXPECT_EQ(chunks[2].tensors.size(), 3u);
  EXPECT_EQ(chunks[2].num_shards, 4);
  EXPECT_EQ(chunks[2].shard, 3);
  EXPECT_EQ(chunks[0].num_shards, 2);
  EXPECT_EQ(chunks[0].tensors[0].rows, 49);  // of 97 words
  EXPECT_EQ(chunks_of(input, 2)[0].tensors[0].rows, 48);
  EXPECT_EQ(chunks[0].tensors[1].rows, 8);  // of 16 positions
  EXPECT_EQ(chunks[5].tensors[0].rows, 49);
  EXPECT_EQ(chunks[6].tensors.size(), 2u);  // the final norm
  EXPECT_EQ(chunks[6].num_shards, 4);
}

// The tables of a rank are a tp-th of their rows, up to one: (vocabulary + positions) x hidden / tp.
TEST(Chunks, TablesShrinkWithTensorParallelism) {
  for (const bool tied : {false, true})
    for (const int64_t tp : {1, 2, 4}) {
      const CompileInput input = tiny_input(tiny_gpt2(1, tied), {tp, 1, 1, 0}, 1);
      int64_t vocabulary = 0, most = 0;
      for (int rank = 0; rank < tp; ++rank) {
        int64_t elements = 0;
        for (const Chunk& chunk : chunks_of(input, rank))
          for (const ChunkTensor& tensor : chunk.tensors)
            if (chunk.layer == 0 || (chunk.layer == 3 && tensor.rows > 1)) elements += tensor.num_elements();
        vocabulary += elements;
        most = std::max(most, elements);
      }
      const int64_t tables = tied ? 1 : 2;
      EXPECT_EQ(vocabulary, (tables * 97 + 16) * 32);
      EXPECT_EQ(most, (tables * ((97 + tp - 1) / tp) + 16 / tp) * 32);
    }
}

TEST(Chunks, TiedTableOnOneStageHasOneChunk) {
  const std::vector<Chunk> chunks = chunks_of(tiny_input(tiny_gpt2(1, true), {1, 1, 2, 1}, 1), 0);
  EXPECT_THAT(names_of(chunks), ElementsAre("embedding.tied", "embedding", "attention.0", "mlp.0", "head"));
  EXPECT_FALSE(chunks[0].tied_alias);
  EXPECT_EQ(chunks[0].tied_peer_stage, -1);
  EXPECT_EQ(chunks[4].tensors.size(), 2u);  // the final norm only
}

// The alias follows its owner's ZeRO stage, whatever the head's: the two exchange owned parts.
TEST(Chunks, TiedTableOnTwoStagesHasAnOwnerAndAnAlias) {
  CompileInput input = tiny_input(tiny_gpt2(1, true), {1, 2, 2, 1}, 1);
  input.plan.layers.back().zero = 3;
  const Chunk owner = named(chunks_of(input, 1), "embedding.tied"), alias = named(chunks_of(input, 3), "head.tied");
  EXPECT_FALSE(owner.tied_alias);
  EXPECT_TRUE(alias.tied_alias);
  EXPECT_EQ(owner.tied_peer_stage, 1);
  EXPECT_EQ(alias.tied_peer_stage, 0);
  EXPECT_EQ(alias.zero, owner.zero);
  EXPECT_EQ(alias.elements, owner.elements);
  EXPECT_EQ(alias.owned_begin(), owner.owned_begin());
  EXPECT_EQ(named(chunks_of(input, 3), "head").zero, 3);
}

// What is saved and counts in norms, over all ranks: every parameter element exactly once (tensor-parallel parts by
// parts).
TEST(Chunks, OwnedPartsCoverEveryElementOnce) {
  for (bool tied : {false, true})
    for (int64_t tp : {1, 2, 4})
      for (int64_t pp : {1, 3})
        for (int64_t dp : {1, 2, 3})
          for (int zero : {0, 1, 2, 3}) {
            const CompileInput input = tiny_input(tiny_gpt2(2, tied), {tp, pp, dp, zero}, 1);
            const std::vector<LayerDecl> layers = declare_layers(input.model);
            std::map<std::tuple<int, int, int64_t>, std::vector<int>>
                covered;  // layer, parameter, tensor rank if split
            for (int rank = 0; rank < input.plan.num_ranks; ++rank)
              for (const Chunk& chunk : chunks_of(input, rank)) {
                if (chunk.tied_alias || (chunk.zero == 0 && chunk.shard > 0)) continue;
                for (const ChunkTensor& tensor : chunk.tensors) {
                  const ParameterDecl& decl = layers[tensor.layer].parameters[tensor.parameter];
                  const bool split = decl.partition != Partition::kReplicated;
                  std::vector<int>& times = covered[{tensor.layer, tensor.parameter, split ? rank % tp : 0}];
                  times.resize(static_cast<size_t>(tensor.num_elements()));
                  for (int64_t element = 0; element < tensor.num_elements(); ++element) {
                    const int64_t at = tensor.offset + element - chunk.owned_begin();
                    if (at >= 0 && at < chunk.owned_elements()) ++times[static_cast<size_t>(element)];
                  }
                }
              }
            int64_t total = 0;
            for (const auto& [key, times] : covered) {
              EXPECT_THAT(times, ::testing::Each(1))
                  << "layer " << std::get<0>(key) << " parameter " << std::get<1>(key);
              total += static_cast<int64_t>(times.size());
            }
            EXPECT_EQ(total, count_parameters(layers));
          }
}

}  // namespace
}  // namespace strata

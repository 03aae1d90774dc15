// SPDX-License-Identifier: Apache-2.0
// What a layer is, as data: its tensors, its segments (longest parts that need no other rank) with what each direction
// reads and writes, and its parameters. The compiler, the memory planner, checkpoints, Hugging Face folders and `strata
// program` all read these tables; strata/model holds one plain function per segment and direction. Pure: no device.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "strata/spec/model_spec.h"

namespace strata {

enum class LayerKind : uint8_t { kEmbedding, kAttention, kMlp, kHead };

// Directions of a segment. kBackward is the fused form of both parts (the head: its logits are never whole).
enum class Direction : uint8_t { kForward, kRecompute, kBackwardInput, kBackwardWeight, kBackward, kDecode };

// Over the tensor-parallel group a tensor is complete on every rank, a partial sum on each, split by channels, or of
// every rank its own, which are gathered one behind the other.
enum class Layout : uint8_t { kComplete, kPartial, kSharded, kStacked };

// What happens to a tensor between forward and backward when activations are kept selectively.
enum class Saving : uint8_t {
  kNone,   // not read by backward, or a gradient
  kKept,   // the result of a product, or tiny
  kCheap,  // elementwise from kept tensors: TensorDecl::recomputed_from
};

// What one of `parts` has of `size` rows, channels or tokens: shares differ by at most one.
struct Share {
  int64_t begin = 0;
  int64_t count = 0;
};
Share share_of(int64_t size, int64_t parts, int64_t part);

// One row per token. Widths are of the whole tensor; a sharded one holds this rank's share.
struct TensorDecl {
  std::string_view name;
  int64_t width = 0;
  bool f32 = false;  // otherwise the storage precision
  Layout layout = Layout::kComplete;
  Saving saving = Saving::kNone;
  std::vector<int> recomputed_from;
  bool single_row = false;  // one row for the whole micro-batch (the logits of generation)
  bool of_slice = false;    // a row per token of the context rank whose slice the instruction deals with
  bool by_tile = false;     // rows of one tile of tokens
  bool by_heads = false;    // context ranks share the heads, and each has all tokens
};

struct DirectionDecl {
  std::vector<int> reads;
  std::vector<int> writes;
  bool empty() const { return reads.empty() && writes.empty(); }
};

// A layer may be declared twice: fused, for one tensor-parallel rank and for generation, and in tiles of tokens with
// communication between.
enum class SegmentForm : uint8_t { kOnly, kFused, kTiled };

struct SegmentDecl {
  std::string_view name;
  SegmentForm form = SegmentForm::kOnly;
  bool by_tile = false;  // one run per tile; neighbours take turns
  std::vector<int> parameters;
  DirectionDecl forward;
  DirectionDecl backward_input;   // empty: no such part
  DirectionDecl backward_weight;  // empty: no such part
  // What of backward_weight's reads the gradient of each parameter needs; together all of them.
  std::map<int, std::vector<int>> gradient_reads;
  DirectionDecl backward;  // fused; used instead of the two when not empty
  DirectionDecl decode;    // empty: forward serves
  bool on_demand = false;  // not a step of its own: runs where the compiler inserts it
};

// What divides over the tensor-parallel ranks. kTableRows need not divide: ranks have their share_of them.
enum class Partition : uint8_t { kReplicated, kRows, kCols, kTableRows };
enum class Init : uint8_t { kZeros, kOnes, kNormal, kNormalResidual };  // residual: std / sqrt(2 * blocks)

// How a Hugging Face tensor lies in a parameter: rows [row_begin, row_begin + rows), transposed when the family stores
// (in, out). For vectors (rows == 1) the range is over columns.
struct HubPart {
  std::string name;
  int64_t begin = 0;
  int64_t count = 0;
  bool transposed = false;
};

struct ParameterDecl {
  std::string name;  // global and unique: "attention.3.qkv.weight"
  int64_t rows = 0;
  int64_t cols = 0;
  bool matrix = true;  // matrices decay by default, vectors (norms, biases) do not
  Partition partition = Partition::kReplicated;
  // Along the split dimension (columns of a vector): a rank holds its share of every block, block after block, so the
  // [q; k; v] of its heads. Empty: one block.
  std::vector<int64_t> split_blocks;
  bool partial_over_tp = false;  // replicated, and every tensor-parallel rank has only a part of its gradient
  bool frozen = false;           // never changes: no gradient, no optimizer state (freeze.h)
  Init init = Init::kNormal;
  std::vector<HubPart> hub;
  int64_t num_elements() const { return rows * cols; }
};

struct LayerDecl {
  LayerKind kind = LayerKind::kEmbedding;
  int64_t block = 0;
  std::string name;  // "embedding", "attention.3", "mlp.3", "head"
  std::vector<TensorDecl> tensors;
  std::vector<SegmentDecl> segments;
  std::vector<ParameterDecl> parameters;
  int tied_parameter = -1;   // index in `parameters` that aliases the token table of the embedding
  int input = -1;            // tensor read from the layer before
  int output = -1;           // tensor handed to the layer after
  int output_gradient = -1;  // gradient read from the layer after; -1: nothing that is trained needs it
  int input_gradient = -1;   // gradient handed to the layer before; -1 as there
};

// Tensor indices, shared with strata/model.
namespace embedding_tensor {
enum : int { kX, kDx, kCount };
}
namespace attention_tensor {
enum : int {
  kX,
  kStats,
  kNormed,
  kQkv,
  kAttended,
  kLse,
  kY,
  kDy,
  kDattended,
  kDqkv,
  kDnormed,
  kDx,
  kKvCache,
  kKv,  // context parallelism: keys and values of one rank, what was attended so far, gradients so far
  kSum,
  kDq,
  kDkv,
  kQkvHeads,  // context ranks that share heads: what the core reads and writes
  kAttendedHeads,
  kLseHeads,
  kDattendedHeads,
  kDqkvHeads,
  kCount
};
}
namespace mlp_tensor {
enum : int { kX, kStats, kNormed, kPre, kAct, kY, kDy, kDact, kDpre, kDnormed, kDx, kCount };
}
namespace head_tensor {
enum : int { kX, kStats, kNormed, kDnormed, kDx, kLogits, kTileLogits, kTileStatistics, kCount };
}
// Segment indices.
namespace attention_segment {
// With context parallelism the core is split: kKeys packs this rank's keys and values, kSlice attends those of one rank
// (the first sets, later ones add), kFinish makes what the core makes. kHeads is the core of context ranks that share
// heads.
enum : int { kQkv, kCore, kOutput, kKeys, kSlice, kFinish, kHeads };
}  // namespace attention_segment
namespace mlp_segment {
enum : int { kUp, kDown };
}
namespace head_segment {
enum : int { kFused, kNorm, kTileLogits, kTileLoss };
}

// Parameter indices; -1 where a model has no such parameter.
struct AttentionParameters {
  int norm_weight = -1, norm_bias = -1, qkv_weight = -1, qkv_bias = -1, output_weight = -1, output_bias = -1;
};
struct MlpParameters {
  int norm_weight = -1, norm_bias = -1, up_weight = -1, up_bias = -1, down_weight = -1, down_bias = -1;
};
struct HeadParameters {
  int norm_weight = -1, norm_bias = -1, weight = -1;
};
struct EmbeddingParameters {
  int token = -1, position = -1;
};
// The columns of a tensor as ranks share them out: part by part of every block, such as those of a fused [q; k; v].
std::vector<int64_t> column_blocks(const ModelSpec& model, const LayerDecl& layer, int tensor);
AttentionParameters attention_parameters(const ModelSpec& model);
MlpParameters mlp_parameters(const ModelSpec& model);
HeadParameters head_parameters(const ModelSpec& model);
EmbeddingParameters embedding_parameters(const ModelSpec& model);

// The whole model, in order: embedding, attention and MLP of every block, head.
std::vector<LayerDecl> declare_layers(const ModelSpec& model);

// Parameters of all layers without the tied alias: the model's parameter count.
int64_t count_parameters(const std::vector<LayerDecl>& layers);

const DirectionDecl& direction_of(const SegmentDecl& segment, Direction direction);
std::string_view direction_name(Direction direction);

}  // namespace strata

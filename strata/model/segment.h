// SPDX-License-Identifier: Apache-2.0
// The layers' maths: one plain function per segment and direction, over the kernels. Weights and buffers are bound at
// call time, so the same function serves weights that are resident, gathered or streamed. Complete on return; called by
// the thread that owns the team.
#pragma once

#include <array>

#include "strata/kernels/kernels.h"
#include "strata/layers/declaration.h"
#include "strata/spec/batch_sheet.h"
#include "strata/spec/plan.h"
#include "strata/spec/step_scalars.h"
#include "strata/spec/train_config.h"

namespace strata {

constexpr int kMaxTensors = 24;
constexpr int kMaxParameters = 8;

struct SegmentCall {
  const ModelSpec& model;   // this rank's part of it (tensor_parallel_part)
  int64_t tensor_rank = 0;  // the first one adds what is added once (biases, residuals, loss) to partial sums
  int64_t num_tensor_ranks = 1;
  const LayerDecl& layer;
  int layer_index = 0;  // keys dropout
  int segment = 0;
  Direction direction = Direction::kForward;
  int recomputed = -1;
  Share tile;               // tokens of a run by tile
  int64_t tile_tokens = 1;  // of the fused head
  const MicroBatch& batch;
  StepScalars& scalars;
  kernels::Context context;                             // scratch: the run's workspace
  std::array<TensorView, kMaxTensors> tensors{};        // by tensor index; rows are the tokens of the batch
  std::array<TensorView, kMaxParameters> parameters{};  // by parameter index
  std::array<TensorView, kMaxParameters> gradients{};   // f32
  std::array<kernels::Write, kMaxParameters> gradient_write{};
  // Context parallelism: this rank, the one whose keys and values are attended, and whether results are added to.
  int64_t context_rank = 0;
  int slice = -1;
  bool adds_slice() const { return slice >= 0 && slice != context_rank; }

  bool adds_once() const { return tensor_rank == 0; }
  // Empty for a parameter that the model does not have (index -1), and the gradient of a frozen one.
  TensorView parameter(int index) const { return index < 0 ? TensorView() : parameters[index]; }
  TensorView gradient(int index) const { return index < 0 ? TensorView() : gradients[index]; }
  // Whether the gradients of a weight and its bias, which lie in one chunk, are set; one of them may be frozen.
  kernels::Write write_of(int weight, int bias) const {
    return gradient_write[gradient(weight).empty() && bias >= 0 ? bias : weight];
  }
};

// What one of `tp` ranks computes with: its heads, kv heads and MLP channels. tp divides them (validate_plan).
ModelSpec tensor_parallel_part(const ModelSpec& model, int64_t tp);

void run_segment(const SegmentCall& call);

// What run_segment needs as scratch for micro-batches of at most these sizes.
struct WorkspaceSizes {
  DType dtype = DType::kF32;
  int64_t tokens = 0;
  int64_t seq = 0;  // longest sequence (or KV cache)
};
int64_t segment_workspace_bytes(const ModelSpec& model, const Plan& plan, const LayerDecl& layer, int segment,
                                Direction direction, const WorkspaceSizes& sizes);

namespace segments {  // per layer kind, in their own files
void embedding(const SegmentCall& call);
void attention(const SegmentCall& call);
void mlp(const SegmentCall& call);
void head(const SegmentCall& call);
}  // namespace segments

// The dropout of one site of a layer; rate 0 outside training.
enum class DropoutSite : uint64_t { kEmbedding, kAttention, kAttentionOutput, kMlpOutput };
kernels::Dropout site_dropout(const SegmentCall& call, DropoutSite site, float rate);

// The projection back into the residual stream that ends attention and MLP, in the call's direction:
// y = x + dropout(input * weight^T + bias). Under tensor parallelism y is a partial sum: dropout's mask is the same on
// all ranks, and the first rank adds x and the bias.
struct ResidualProjection {
  DropoutSite site = DropoutSite::kAttentionOutput;
  int weight = -1, bias = -1;  // parameter indices
  TensorView input, x, y, dy, dinput;
};
void residual_projection(const SegmentCall& call, const ResidualProjection& projection);

}  // namespace strata

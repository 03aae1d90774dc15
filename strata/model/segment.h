// SPDX-License-Identifier: Apache-2.0
// The layers' maths: one plain function per segment and direction, over the kernels. Weights and buffers are bound at
// call time, so the same function serves weights that are resident, gathered or streamed. Complete on return; called by
// the thread that owns the team.
#pragma once

#include <array>

#include "strata/kernels/kernels.h"
#include "strata/layers/declaration.h"
#include "strata/spec/batch_sheet.h"
#include "strata/spec/step_scalars.h"
#include "strata/spec/train_config.h"

namespace strata {

constexpr int kMaxTensors = 16;
constexpr int kMaxParameters = 8;

struct SegmentCall {
  const ModelSpec& model;
  const LayerDecl& layer;
  int layer_index = 0;  // keys dropout
  int segment = 0;
  Direction direction = Direction::kForward;
  int recomputed = -1;
  const MicroBatch& batch;
  StepScalars& scalars;
  kernels::Context context;                             // scratch: the run's workspace
  std::array<TensorView, kMaxTensors> tensors{};        // by tensor index; rows are the tokens of the batch
  std::array<TensorView, kMaxParameters> parameters{};  // by parameter index
  std::array<TensorView, kMaxParameters> gradients{};   // f32
  std::array<kernels::Write, kMaxParameters> gradient_write{};
};

void run_segment(const SegmentCall& call);

// What run_segment needs as scratch for micro-batches of at most these sizes.
struct WorkspaceSizes {
  DType dtype = DType::kF32;
  int64_t tokens = 0;
  int64_t seq = 0;  // longest sequence (or KV cache)
  int num_threads = 1;
};
int64_t segment_workspace_bytes(const ModelSpec& model, const LayerDecl& layer, int segment, Direction direction,
                                const WorkspaceSizes& sizes);

// Rows of logits that exist at a time in the head: about 64 MiB of them, at most all tokens.
int64_t head_tile_tokens(const ModelSpec& model, int64_t tokens);

namespace segments {  // per layer kind, in their own files
void embedding(const SegmentCall& call);
void attention(const SegmentCall& call);
void mlp(const SegmentCall& call);
void head(const SegmentCall& call);
}  // namespace segments

// The dropout of one site of a layer; rate 0 outside training.
enum class DropoutSite : uint64_t { kEmbedding, kAttention, kAttentionOutput, kMlpOutput };
kernels::Dropout site_dropout(const SegmentCall& call, DropoutSite site, float rate);

// The gradient of a projection's output behind its residual dropout, and the context with the scratch that is left: dy
// itself without dropout, otherwise a masked copy at the front of the scratch.
struct MaskedGradient {
  TensorView view;
  kernels::Context context;
};
MaskedGradient mask_gradient(const SegmentCall& call, DropoutSite site, const TensorView& dy);

}  // namespace strata

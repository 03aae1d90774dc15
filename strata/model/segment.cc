// SPDX-License-Identifier: Apache-2.0
#include "strata/model/segment.h"

#include <algorithm>

#include "strata/base/random.h"

namespace strata {
namespace {

constexpr int64_t kLine = 64;

int64_t round_up(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// The largest product of a segment as (m, n, k), in any of its directions.
int64_t largest_gemm_scratch(const ModelSpec& model, LayerKind kind, int segment, const WorkspaceSizes& sizes,
                             int num_threads) {
  const auto scratch = [&](int64_t in, int64_t out) {
    return std::max({kernels::gemm_scratch_bytes(sizes.dtype, sizes.tokens, out, in, num_threads),
                     kernels::gemm_scratch_bytes(sizes.dtype, sizes.tokens, in, out, num_threads),
                     kernels::gemm_scratch_bytes(sizes.dtype, out, in, sizes.tokens, num_threads)});
  };
  if (kind == LayerKind::kAttention)
    return segment == attention_segment::kQkv ? scratch(model.hidden, model.qkv_width())
                                              : scratch(model.attended_width(), model.hidden);
  return segment == mlp_segment::kUp ? scratch(model.hidden, model.up_width()) : scratch(model.ffn, model.hidden);
}

}  // namespace

void run_segment(const SegmentCall& call) {
  switch (call.layer.kind) {
    case LayerKind::kEmbedding: return segments::embedding(call);
    case LayerKind::kAttention: return segments::attention(call);
    case LayerKind::kMlp: return segments::mlp(call);
    case LayerKind::kHead: return segments::head(call);
  }
}

namespace {

int64_t head_workspace_bytes(const ModelSpec& model, const Plan& plan, int segment, Direction direction,
                             const WorkspaceSizes& sizes, int num_threads) {
  if (segment == head_segment::kNorm || (segment == head_segment::kTileLoss && direction == Direction::kForward))
    return 0;
  const int64_t tile = head_tile_tokens(plan, model, sizes.tokens);
  const int64_t words = share_of(model.vocab, plan.layers.back().tp, plan.layers.back().tp - 1).count;  // the largest
  return segment == head_segment::kFused
             ? kernels::head_scratch_bytes(sizes.dtype, tile, model.hidden, words, num_threads)
             : kernels::head_tile_scratch_bytes(sizes.dtype, tile, model.hidden, words, num_threads);
}

}  // namespace

int64_t segment_workspace_bytes(const ModelSpec& model, const Plan& plan, const LayerDecl& layer, int segment,
                                Direction direction, const WorkspaceSizes& sizes) {
  const int num_threads = static_cast<int>(plan.threads);
  if (direction == Direction::kRecompute || layer.kind == LayerKind::kEmbedding) return 0;
  if (layer.kind == LayerKind::kHead) return head_workspace_bytes(model, plan, segment, direction, sizes, num_threads);
  if (layer.kind == LayerKind::kAttention &&
      (segment == attention_segment::kKeys || segment == attention_segment::kFinish))
    return 0;
  if (layer.kind == LayerKind::kAttention &&
      (segment == attention_segment::kCore || segment == attention_segment::kSlice ||
       segment == attention_segment::kHeads))
    return kernels::attention_scratch_bytes(sizes.dtype, model.head_dim, sizes.seq, num_threads);
  const bool backward = direction == Direction::kBackwardInput || direction == Direction::kBackwardWeight;
  const bool masked = backward && model.residual_dropout > 0;
  return largest_gemm_scratch(model, layer.kind, segment, sizes, num_threads) +
         (masked ? round_up(sizes.tokens * model.hidden * dtype_bytes(sizes.dtype)) : 0);
}

kernels::Dropout site_dropout(const SegmentCall& call, DropoutSite site, float rate) {
  if (!call.scalars.training) rate = 0.0f;
  const uint64_t key = mix_key(call.scalars.seed, static_cast<uint64_t>(call.scalars.step),
                               static_cast<uint64_t>(call.layer_index), static_cast<uint64_t>(site));
  return {rate, key, call.batch.token_indices};
}

ModelSpec tensor_parallel_part(const ModelSpec& model, int64_t tp) {
  ModelSpec part = model;
  part.heads /= tp;
  part.kv_heads /= tp;
  part.ffn /= tp;
  return part;
}

namespace {

// The gradient of a projection's output behind its residual dropout, and the context with the scratch that is left: dy
// itself without dropout, otherwise a masked copy at the front of the scratch.
struct MaskedGradient {
  TensorView view;
  kernels::Context context;
};

MaskedGradient mask_gradient(const SegmentCall& call, DropoutSite site, const TensorView& dy) {
  const kernels::Dropout dropout = site_dropout(call, site, call.model.residual_dropout);
  if (dropout.rate == 0) return {dy, call.context};
  const int64_t bytes = round_up(dy.num_elements() * dtype_bytes(dy.dtype));
  STRATA_CHECK(static_cast<int64_t>(call.context.scratch.size()) >= bytes, "workspace of {} bytes, {} needed",
               call.context.scratch.size(), bytes);
  const TensorView masked(call.context.scratch.data(), dy.dtype, dy.rows, dy.cols);
  kernels::dropout(call.context, dropout, dy, masked);
  return {masked, {call.context.team, call.context.scratch.subspan(bytes)}};
}

void projection_forward(const SegmentCall& call, const ResidualProjection& p) {
  const kernels::Dropout dropout = site_dropout(call, p.site, call.model.residual_dropout);
  kernels::linear_forward(call.context, p.input, call.parameter(p.weight),
                          call.adds_once() ? call.parameter(p.bias) : TensorView(), p.y);
  if (call.adds_once()) return kernels::add_residual(call.context, dropout, p.y, p.x, p.y);
  if (dropout.rate > 0) kernels::dropout(call.context, dropout, p.y, p.y);
}

// The bias may lie in another chunk than the weight, whose gradient begins anew more often; both have their own write.
void projection_backward_weight(const SegmentCall& call, const ResidualProjection& p, const MaskedGradient& masked) {
  const TensorView weight = call.gradient(p.weight), bias = call.gradient(p.bias);
  if (!weight.empty())
    kernels::linear_backward_weight(masked.context, masked.view, p.input, weight, {}, call.gradient_write[p.weight]);
  if (bias.empty()) return;
  const kernels::Write write = call.gradient_write[p.bias];
  if (call.adds_once()) return kernels::linear_backward_weight(masked.context, masked.view, {}, {}, bias, write);
  if (write == kernels::Write::kSet) std::fill_n(bias.row<float>(0), bias.num_elements(), 0.0f);
}

}  // namespace

void residual_projection(const SegmentCall& call, const ResidualProjection& p) {
  if (call.direction == Direction::kForward || call.direction == Direction::kRecompute)
    return projection_forward(call, p);
  const MaskedGradient masked = mask_gradient(call, p.site, p.dy);
  if (call.direction == Direction::kBackwardInput)
    return kernels::linear_backward_input(masked.context, masked.view, call.parameter(p.weight), p.dinput);
  projection_backward_weight(call, p, masked);
}

}  // namespace strata

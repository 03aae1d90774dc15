// SPDX-License-Identifier: Apache-2.0
#include "strata/model/segment.h"

namespace strata::segments {
namespace {

using namespace attention_tensor;

struct Heads {
  TensorView q, k, v;
};

// Column ranges of a (tokens, (heads + 2*kv_heads) * head_dim) buffer.
Heads split_heads(const ModelSpec& model, const TensorView& qkv) {
  const int64_t queries = model.heads * model.head_dim;
  const int64_t keys = model.kv_heads * model.head_dim;
  return {qkv.slice_cols(0, queries), qkv.slice_cols(queries, keys), qkv.slice_cols(queries + keys, keys)};
}

void turn(const SegmentCall& call, const TensorView& qkv, int direction) {
  if (call.model.positions != PositionKind::kRope) return;
  kernels::rope(call.context,
                {call.model.heads, call.model.kv_heads, call.model.head_dim, call.model.rope_theta, direction},
                call.batch.positions, qkv);
}

kernels::AttentionArgs core_args(const SegmentCall& call) {
  kernels::AttentionArgs args;
  args.heads = call.model.heads;
  args.kv_heads = call.model.kv_heads;
  args.head_dim = call.model.head_dim;
  args.q_offsets = args.kv_offsets = call.batch.offsets;
  args.dropout = site_dropout(call, DropoutSite::kAttention, call.model.attention_dropout);
  args.first_head = call.tensor_rank * call.model.heads;
  return args;
}

// This rank's pieces against those of one rank, whose keys arrived.
kernels::AttentionArgs slice_args(const SegmentCall& call) {
  const ContextPart own = call.batch.part_of(call.context_rank), other = call.batch.part_of(call.slice);
  kernels::AttentionArgs args = core_args(call);
  args.q_offsets = own.offsets;
  args.kv_offsets = other.offsets;
  args.pieces = 2;
  args.q_positions = own.positions;
  args.kv_positions = other.positions;
  args.write = call.adds_slice() ? kernels::Write::kAdd : kernels::Write::kSet;
  return args;
}

// Of a (tokens, 2 * kv_heads * head_dim) buffer.
TensorView keys_of(const TensorView& kv) { return kv.slice_cols(0, kv.cols / 2); }
TensorView values_of(const TensorView& kv) { return kv.slice_cols(kv.cols / 2, kv.cols / 2); }

void qkv_forward(const SegmentCall& call, const AttentionParameters& p) {
  const auto& t = call.tensors;
  const auto& w = call.parameters;
  if (call.direction == Direction::kRecompute)
    return kernels::norm_apply(call.context, call.model.norm, t[kX], w[p.norm_weight], call.parameter(p.norm_bias),
                               t[kStats], t[kNormed]);
  kernels::norm_forward(call.context, call.model.norm, call.model.norm_eps, t[kX], w[p.norm_weight],
                        call.parameter(p.norm_bias), t[kNormed], t[kStats]);
  kernels::linear_forward(call.context, t[kNormed], w[p.qkv_weight], call.parameter(p.qkv_bias), t[kQkv]);
  turn(call, t[kQkv], 1);
}

void qkv_backward_input(const SegmentCall& call, const AttentionParameters& p) {
  const auto& t = call.tensors;
  kernels::linear_backward_input(call.context, t[kDqkv], call.parameters[p.qkv_weight], t[kDnormed]);
  kernels::norm_backward_input(call.context, call.model.norm, t[kDnormed], t[kX], call.parameters[p.norm_weight],
                               t[kStats], call.adds_once() ? t[kDy] : TensorView(), t[kDx]);
}

void qkv_backward_weight(const SegmentCall& call, const AttentionParameters& p) {
  const auto& t = call.tensors;
  const auto& g = call.gradients;
  kernels::linear_backward_weight(call.context, t[kDqkv], t[kNormed], g[p.qkv_weight], call.gradient(p.qkv_bias),
                                  call.write_of(p.qkv_weight, p.qkv_bias));
  kernels::norm_backward_weight(call.context, call.model.norm, t[kDnormed], t[kX], t[kStats], g[p.norm_weight],
                                call.gradient(p.norm_bias), call.write_of(p.norm_weight, p.norm_bias));
}

void core_forward(const SegmentCall& call) {
  const Heads heads = split_heads(call.model, call.tensors[kQkv]);
  kernels::attention_forward(call.context, core_args(call), heads.q, heads.k, heads.v, call.tensors[kAttended],
                             call.tensors[kLse]);
}

void core_backward(const SegmentCall& call) {
  const auto& t = call.tensors;
  const Heads heads = split_heads(call.model, t[kQkv]);
  const Heads gradients = split_heads(call.model, t[kDqkv]);
  kernels::attention_backward(call.context, core_args(call), heads.q, heads.k, heads.v, t[kAttended], t[kLse],
                              t[kDattended], gradients.q, gradients.k, gradients.v);
  turn(call, t[kDqkv], -1);
}

void pack_keys(const SegmentCall& call) {
  const Heads heads = split_heads(call.model, call.tensors[kQkv]);
  kernels::convert(call.context, heads.k, keys_of(call.tensors[kKv]));
  kernels::convert(call.context, heads.v, values_of(call.tensors[kKv]));
}

void slice_forward(const SegmentCall& call) {
  const auto& t = call.tensors;
  kernels::attention_forward(call.context, slice_args(call), split_heads(call.model, t[kQkv]).q, keys_of(t[kKv]),
                             values_of(t[kKv]), t[kSum], t[kLse]);
}

void slice_backward(const SegmentCall& call) {
  const auto& t = call.tensors;
  kernels::attention_backward(call.context, slice_args(call), split_heads(call.model, t[kQkv]).q, keys_of(t[kKv]),
                              values_of(t[kKv]), t[kAttended], t[kLse], t[kDattended], t[kDq], keys_of(t[kDkv]),
                              values_of(t[kDkv]));
}

void finish_forward(const SegmentCall& call) {
  kernels::convert(call.context, call.tensors[kSum], call.tensors[kAttended]);
}

void finish_backward(const SegmentCall& call) {
  const auto& t = call.tensors;
  const Heads gradients = split_heads(call.model, t[kDqkv]);
  kernels::convert(call.context, t[kDq], gradients.q);
  kernels::convert(call.context, keys_of(t[kDkv]), gradients.k);
  kernels::convert(call.context, values_of(t[kDkv]), gradients.v);
  turn(call, t[kDqkv], -1);
}

// One sequence: its new keys and values join the cache, its queries see all of it.
void core_decode(const SegmentCall& call) {
  const int64_t tokens = call.batch.num_tokens();
  const int64_t past = call.batch.positions.front();
  const Heads heads = split_heads(call.model, call.tensors[kQkv]);
  const int64_t width = call.model.kv_heads * call.model.head_dim;
  const TensorView& cache = call.tensors[kKvCache];
  STRATA_CHECK(past + tokens <= cache.rows, "KV cache of {} tokens, {} wanted", cache.rows, past + tokens);
  kernels::convert(call.context, heads.k, cache.slice_rows(past, tokens).slice_cols(0, width));
  kernels::convert(call.context, heads.v, cache.slice_rows(past, tokens).slice_cols(width, width));
  const std::array<int32_t, 2> queries = {0, static_cast<int32_t>(tokens)};
  const std::array<int32_t, 2> keys = {0, static_cast<int32_t>(past + tokens)};
  kernels::AttentionArgs args = core_args(call);
  args.q_offsets = queries;
  args.kv_offsets = keys;
  const TensorView seen = cache.slice_rows(0, past + tokens);
  kernels::attention_forward(call.context, args, heads.q, seen.slice_cols(0, width), seen.slice_cols(width, width),
                             call.tensors[kAttended], call.tensors[kLse]);
}

// The core of context ranks that share heads: the call has this rank's heads of all tokens.
SegmentCall heads_call(const SegmentCall& call) {
  SegmentCall core = call;
  constexpr std::pair<int, int> kNames[] = {{kQkv, kQkvHeads},
                                            {kAttended, kAttendedHeads},
                                            {kLse, kLseHeads},
                                            {kDattended, kDattendedHeads},
                                            {kDqkv, kDqkvHeads}};
  for (const auto& [name, heads] : kNames) core.tensors[name] = call.tensors[heads];
  return core;
}

void output(const SegmentCall& call, const AttentionParameters& p) {
  const auto& t = call.tensors;
  residual_projection(call, {DropoutSite::kAttentionOutput, p.output_weight, p.output_bias, t[kAttended], t[kX], t[kY],
                             t[kDy], t[kDattended]});
}

}  // namespace

void attention(const SegmentCall& call) {
  const AttentionParameters p = attention_parameters(call.model);
  const bool forward = call.direction == Direction::kForward || call.direction == Direction::kRecompute;
  switch (call.segment) {
    case attention_segment::kQkv:
      if (forward) return qkv_forward(call, p);
      return call.direction == Direction::kBackwardInput ? qkv_backward_input(call, p) : qkv_backward_weight(call, p);
    case attention_segment::kCore:
      if (call.direction == Direction::kDecode) return core_decode(call);
      return forward ? core_forward(call) : core_backward(call);
    case attention_segment::kHeads: return forward ? core_forward(heads_call(call)) : core_backward(heads_call(call));
    case attention_segment::kKeys: return pack_keys(call);
    case attention_segment::kSlice: return forward ? slice_forward(call) : slice_backward(call);
    case attention_segment::kFinish: return forward ? finish_forward(call) : finish_backward(call);
    default: return output(call, p);
  }
}

}  // namespace strata::segments

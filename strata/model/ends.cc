// SPDX-License-Identifier: Apache-2.0
// The two ends of the model: embedding, and final norm with logits and loss.
#include <algorithm>

#include "strata/model/segment.h"

namespace strata::segments {

namespace {

// This rank's rows of a table, or of its gradient.
kernels::TablePart table_part(const SegmentCall& call, int parameter, const TensorView& rows) {
  if (rows.empty()) return TensorView();
  const int64_t num_rows = call.layer.parameters[parameter].rows;
  return {rows, share_of(num_rows, call.num_tensor_ranks, call.tensor_rank).begin, num_rows};
}

}  // namespace

void embedding(const SegmentCall& call) {
  using namespace embedding_tensor;
  const EmbeddingParameters p = embedding_parameters(call.model);
  const kernels::Dropout dropout = site_dropout(call, DropoutSite::kEmbedding, call.model.embedding_dropout);
  const bool learned = p.position >= 0;
  if (call.direction == Direction::kForward)
    return kernels::embedding_forward(
        call.context, call.batch.ids, call.batch.positions, table_part(call, p.token, call.parameters[p.token]),
        table_part(call, p.position, call.parameter(p.position)), dropout, call.tensors[kX]);
  kernels::embedding_backward(call.context, call.batch.ids, call.batch.positions, call.tensors[kDx], dropout,
                              table_part(call, p.token, call.gradients[p.token]),
                              table_part(call, p.position, call.gradient(p.position)), call.gradient_write[p.token],
                              learned ? call.gradient_write[p.position] : kernels::Write::kSet);
}

namespace {

using namespace head_tensor;

void norm_forward(const SegmentCall& call, const HeadParameters& p) {
  kernels::norm_forward(call.context, call.model.norm, call.model.norm_eps, call.tensors[kX],
                        call.parameters[p.norm_weight], call.parameter(p.norm_bias), call.tensors[kNormed],
                        call.tensors[kStats]);
}

// Of partial sums it makes partial sums.
void norm_backward(const SegmentCall& call, const HeadParameters& p) {
  const auto& t = call.tensors;
  kernels::norm_backward_weight(call.context, call.model.norm, t[kDnormed], t[kX], t[kStats],
                                call.gradients[p.norm_weight], call.gradient(p.norm_bias),
                                call.write_of(p.norm_weight, p.norm_bias));
  kernels::norm_backward_input(call.context, call.model.norm, t[kDnormed], t[kX], call.parameters[p.norm_weight],
                               t[kStats], TensorView(), t[kDx]);
}

float loss_scale(const SegmentCall& call) {
  return call.scalars.counted > 0 ? static_cast<float>(1.0 / call.scalars.counted) : 0.0f;
}

Share words_of(const SegmentCall& call) { return share_of(call.model.vocab, call.num_tensor_ranks, call.tensor_rank); }

// Logits of the last token. Over several ranks they are partial sums: zero but for this rank's words.
void next_logits(const SegmentCall& call, const TensorView& weight) {
  const TensorView& logits = call.tensors[kLogits];
  const Share words = words_of(call);
  if (words.count < logits.cols) std::fill_n(logits.row<float>(0), logits.cols, 0.0f);
  kernels::head_logits(call.context, call.tensors[kNormed].slice_rows(call.batch.num_tokens() - 1, 1), weight,
                       logits.slice_cols(words.begin, words.count));
}

// One rank has the whole vocabulary.
void fused(const SegmentCall& call, const HeadParameters& p) {
  norm_forward(call, p);
  const auto& t = call.tensors;
  const TensorView& weight = call.parameters[p.weight];
  const kernels::HeadArgs args{call.batch.targets, call.tile_tokens};
  if (call.direction == Direction::kDecode) return next_logits(call, weight);
  if (call.direction == Direction::kForward)
    return kernels::head_forward(call.context, args, t[kNormed], weight, &call.scalars.loss_sum);
  kernels::head_forward_backward(call.context, args, loss_scale(call), t[kNormed], weight, &call.scalars.loss_sum,
                                 t[kDnormed], call.gradients[p.weight], call.gradient_write[p.weight]);
  norm_backward(call, p);
}

kernels::HeadTile tile_of(const SegmentCall& call) {
  return {call.batch.targets.subspan(call.tile.begin, call.tile.count), words_of(call).begin, call.model.vocab};
}

void tile_logits(const SegmentCall& call, const HeadParameters& p) {
  const auto& t = call.tensors;
  kernels::head_statistics(call.context, tile_of(call), t[kNormed].slice_rows(call.tile.begin, call.tile.count),
                           call.parameters[p.weight], t[kTileLogits],
                           t[kTileStatistics].slice_rows(call.tensor_rank * call.tile.count, call.tile.count));
}

void tile_loss(const SegmentCall& call, const HeadParameters& p) {
  const auto& t = call.tensors;
  const kernels::HeadTile tile = tile_of(call);
  // Every tensor-parallel rank knows the loss: it counts once.
  if (call.adds_once()) kernels::head_loss(tile, t[kTileStatistics], &call.scalars.loss_sum);
  if (call.direction == Direction::kForward) return;
  kernels::head_gradients(call.context, tile, loss_scale(call), t[kNormed].slice_rows(call.tile.begin, call.tile.count),
                          call.parameters[p.weight], t[kTileLogits], t[kTileStatistics],
                          t[kDnormed].slice_rows(call.tile.begin, call.tile.count), call.gradients[p.weight],
                          call.gradient_write[p.weight]);
}

}  // namespace

void head(const SegmentCall& call) {
  const HeadParameters p = head_parameters(call.model);
  switch (call.segment) {
    case head_segment::kFused: return fused(call, p);
    case head_segment::kNorm:
      return call.direction == Direction::kForward ? norm_forward(call, p) : norm_backward(call, p);
    case head_segment::kTileLogits: return tile_logits(call, p);
    default: return tile_loss(call, p);
  }
}

}  // namespace strata::segments

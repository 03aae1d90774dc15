// SPDX-License-Identifier: Apache-2.0
// The two ends of the model: embedding, and final norm with logits and loss.
#include "strata/model/segment.h"

namespace strata::segments {

void embedding(const SegmentCall& call) {
  using namespace embedding_tensor;
  const EmbeddingParameters p = embedding_parameters(call.model);
  const kernels::Dropout dropout = site_dropout(call, DropoutSite::kEmbedding, call.model.embedding_dropout);
  const bool learned = p.position >= 0;
  if (call.direction == Direction::kForward)
    return kernels::embedding_forward(call.context, call.batch.ids, call.batch.positions, call.parameters[p.token],
                                      call.parameter(p.position), dropout, call.tensors[kX]);
  kernels::embedding_backward(call.context, call.batch.ids, call.batch.positions, call.tensors[kDx], dropout,
                              call.gradients[p.token], call.gradient(p.position), call.gradient_write[p.token],
                              learned ? call.gradient_write[p.position] : kernels::Write::kSet);
}

namespace {

using namespace head_tensor;

void final_norm(const SegmentCall& call, const HeadParameters& p) {
  kernels::norm_forward(call.context, call.model.norm, call.model.norm_eps, call.tensors[kX],
                        call.parameters[p.norm_weight], call.parameter(p.norm_bias), call.tensors[kNormed],
                        call.tensors[kStats]);
}

void loss_backward(const SegmentCall& call, const HeadParameters& p, const kernels::HeadArgs& args, double* loss_sum) {
  const auto& t = call.tensors;
  const auto& g = call.gradients;
  const float scale = call.scalars.counted > 0 ? static_cast<float>(1.0 / call.scalars.counted) : 0.0f;
  kernels::head_forward_backward(call.context, args, scale, t[kNormed], call.parameters[p.weight], loss_sum,
                                 t[kDnormed], g[p.weight], call.gradient_write[p.weight]);
  kernels::norm_backward_weight(call.context, call.model.norm, t[kDnormed], t[kX], t[kStats], g[p.norm_weight],
                                call.gradient(p.norm_bias), call.write_of(p.norm_weight, p.norm_bias));
  kernels::norm_backward_input(call.context, call.model.norm, t[kDnormed], t[kX], call.parameters[p.norm_weight],
                               t[kStats], TensorView(), t[kDx]);
}

}  // namespace

void head(const SegmentCall& call) {
  const HeadParameters p = head_parameters(call.model);
  final_norm(call, p);
  const kernels::HeadArgs args{call.batch.targets, head_tile_tokens(call.model, call.batch.num_tokens())};
  double uncounted = 0;  // every tensor-parallel rank computes the same loss: it counts once
  double* const loss_sum = call.adds_once() ? &call.scalars.loss_sum : &uncounted;
  if (call.direction == Direction::kBackward) return loss_backward(call, p, args, loss_sum);
  if (call.direction == Direction::kForward)
    return kernels::head_forward(call.context, args, call.tensors[kNormed], call.parameters[p.weight], loss_sum);
  const TensorView last = call.tensors[kNormed].slice_rows(call.batch.num_tokens() - 1, 1);
  kernels::head_logits(call.context, last, call.parameters[p.weight], call.tensors[kLogits]);
}

}  // namespace strata::segments

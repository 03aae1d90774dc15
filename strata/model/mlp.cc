// SPDX-License-Identifier: Apache-2.0
#include "strata/model/segment.h"

namespace strata::segments {
namespace {

using namespace mlp_tensor;

void recompute(const SegmentCall& call, const MlpParameters& p) {
  const auto& t = call.tensors;
  if (call.recomputed == kAct)
    return kernels::activation_forward(call.context, call.model.activation, t[kPre], t[kAct]);
  kernels::norm_apply(call.context, call.model.norm, t[kX], call.parameters[p.norm_weight],
                      p.norm_bias < 0 ? TensorView() : call.parameters[p.norm_bias], t[kStats], t[kNormed]);
}

void up_forward(const SegmentCall& call, const MlpParameters& p) {
  const auto& t = call.tensors;
  const auto& w = call.parameters;
  kernels::norm_forward(call.context, call.model.norm, call.model.norm_eps, t[kX], w[p.norm_weight],
                        p.norm_bias < 0 ? TensorView() : w[p.norm_bias], t[kNormed], t[kStats]);
  kernels::linear_forward(call.context, t[kNormed], w[p.up_weight], p.up_bias < 0 ? TensorView() : w[p.up_bias],
                          t[kPre]);
  kernels::activation_forward(call.context, call.model.activation, t[kPre], t[kAct]);
}

void up_backward_input(const SegmentCall& call, const MlpParameters& p) {
  const auto& t = call.tensors;
  kernels::activation_backward(call.context, call.model.activation, t[kDact], t[kPre], t[kDpre]);
  kernels::linear_backward_input(call.context, t[kDpre], call.parameters[p.up_weight], t[kDnormed]);
  kernels::norm_backward_input(call.context, call.model.norm, t[kDnormed], t[kX], call.parameters[p.norm_weight],
                               t[kStats], t[kDy], t[kDx]);
}

void up_backward_weight(const SegmentCall& call, const MlpParameters& p) {
  const auto& t = call.tensors;
  const auto& g = call.gradients;
  kernels::linear_backward_weight(call.context, t[kDpre], t[kNormed], g[p.up_weight],
                                  p.up_bias < 0 ? TensorView() : g[p.up_bias], call.gradient_write[p.up_weight]);
  kernels::norm_backward_weight(call.context, call.model.norm, t[kDnormed], t[kX], t[kStats], g[p.norm_weight],
                                p.norm_bias < 0 ? TensorView() : g[p.norm_bias], call.gradient_write[p.norm_weight]);
}

void down_forward(const SegmentCall& call, const MlpParameters& p) {
  const auto& t = call.tensors;
  kernels::linear_forward(call.context, t[kAct], call.parameters[p.down_weight],
                          p.down_bias < 0 ? TensorView() : call.parameters[p.down_bias], t[kY]);
  kernels::add_residual(call.context, site_dropout(call, DropoutSite::kMlpOutput, call.model.residual_dropout), t[kY],
                        t[kX], t[kY]);
}

void down_backward(const SegmentCall& call, const MlpParameters& p) {
  const auto& t = call.tensors;
  const MaskedGradient masked = mask_gradient(call, DropoutSite::kMlpOutput, t[kDy]);
  if (call.direction == Direction::kBackwardInput)
    kernels::linear_backward_input(masked.context, masked.view, call.parameters[p.down_weight], t[kDact]);
  else
    kernels::linear_backward_weight(masked.context, masked.view, t[kAct], call.gradients[p.down_weight],
                                    p.down_bias < 0 ? TensorView() : call.gradients[p.down_bias],
                                    call.gradient_write[p.down_weight]);
}

}  // namespace

void mlp(const SegmentCall& call) {
  const MlpParameters p = mlp_parameters(call.model);
  if (call.direction == Direction::kRecompute) return recompute(call, p);
  if (call.segment == mlp_segment::kUp) {
    if (call.direction == Direction::kForward) return up_forward(call, p);
    return call.direction == Direction::kBackwardInput ? up_backward_input(call, p) : up_backward_weight(call, p);
  }
  return call.direction == Direction::kForward ? down_forward(call, p) : down_backward(call, p);
}

}  // namespace strata::segments

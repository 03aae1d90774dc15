// SPDX-License-Identifier: Apache-2.0
#include "strata/model/segment.h"

namespace strata::segments {
namespace {

using namespace mlp_tensor;

void recompute(const SegmentCall& call, const MlpParameters& p) {
  const auto& t = call.tensors;
  if (call.recomputed == kAct)
    return kernels::activation_forward(call.context, call.model.activation, t[kPre], t[kAct]);
  kernels::norm_apply(call.context, call.model.norm, t[kX], call.parameters[p.norm_weight], call.parameter(p.norm_bias),
                      t[kStats], t[kNormed]);
}

void up_forward(const SegmentCall& call, const MlpParameters& p) {
  const auto& t = call.tensors;
  const auto& w = call.parameters;
  kernels::norm_forward(call.context, call.model.norm, call.model.norm_eps, t[kX], w[p.norm_weight],
                        call.parameter(p.norm_bias), t[kNormed], t[kStats]);
  kernels::linear_forward(call.context, t[kNormed], w[p.up_weight], call.parameter(p.up_bias), t[kPre]);
  kernels::activation_forward(call.context, call.model.activation, t[kPre], t[kAct]);
}

void up_backward_input(const SegmentCall& call, const MlpParameters& p) {
  const auto& t = call.tensors;
  kernels::activation_backward(call.context, call.model.activation, t[kDact], t[kPre], t[kDpre]);
  kernels::linear_backward_input(call.context, t[kDpre], call.parameters[p.up_weight], t[kDnormed]);
  kernels::norm_backward_input(call.context, call.model.norm, t[kDnormed], t[kX], call.parameters[p.norm_weight],
                               t[kStats], call.adds_once() ? t[kDy] : TensorView(), t[kDx]);
}

void up_backward_weight(const SegmentCall& call, const MlpParameters& p) {
  const auto& t = call.tensors;
  const auto& g = call.gradients;
  kernels::linear_backward_weight(call.context, t[kDpre], t[kNormed], g[p.up_weight], call.gradient(p.up_bias),
                                  call.write_of(p.up_weight, p.up_bias));
  kernels::norm_backward_weight(call.context, call.model.norm, t[kDnormed], t[kX], t[kStats], g[p.norm_weight],
                                call.gradient(p.norm_bias), call.write_of(p.norm_weight, p.norm_bias));
}

void down(const SegmentCall& call, const MlpParameters& p) {
  const auto& t = call.tensors;
  residual_projection(call,
                      {DropoutSite::kMlpOutput, p.down_weight, p.down_bias, t[kAct], t[kX], t[kY], t[kDy], t[kDact]});
}

}  // namespace

void mlp(const SegmentCall& call) {
  const MlpParameters p = mlp_parameters(call.model);
  if (call.direction == Direction::kRecompute) return recompute(call, p);
  if (call.segment == mlp_segment::kUp) {
    if (call.direction == Direction::kForward) return up_forward(call, p);
    return call.direction == Direction::kBackwardInput ? up_backward_input(call, p) : up_backward_weight(call, p);
  }
  down(call, p);
}

}  // namespace strata::segments

// SPDX-License-Identifier: Apache-2.0
#include "strata/optim/update.h"

#include <algorithm>
#include <cmath>

namespace strata {
namespace {

TensorView f32_view(float* data, int64_t count) { return {data, DType::kF32, 1, count}; }

// Views of one range in all buffers; master is the parameter itself in f32.
struct RangeViews {
  TensorView gradient, weight, master;
};

RangeViews views_of(const OwnedRange& range, Precision precision, const UpdateBuffers& buffers) {
  RangeViews views;
  views.gradient = f32_view(const_cast<float*>(buffers.gradient) + range.gradient_begin, range.count);
  if (precision == Precision::kF32) {
    views.weight = f32_view(reinterpret_cast<float*>(buffers.parameters) + range.parameter_begin, range.count);
    views.master = views.weight;
  } else {
    views.weight = {buffers.parameters + range.parameter_begin * dtype_bytes(DType::kBF16), DType::kBF16, 1,
                    range.count};
    views.master = f32_view(buffers.states[0] + range.state_begin, range.count);
  }
  return views;
}

}  // namespace

void measure_norms(const kernels::Context& context, std::span<const OwnedRange> ranges, const float* gradient,
                   std::span<double> norms, StepScalars& scalars) {
  for (const OwnedRange& range : ranges) {
    norms[range.tensor] =
        kernels::sum_of_squares(context, f32_view(const_cast<float*>(gradient) + range.gradient_begin, range.count));
    scalars.norm_squared += norms[range.tensor];
    if (!std::isfinite(norms[range.tensor]) &&
        (scalars.first_bad_tensor < 0 || range.tensor < scalars.first_bad_tensor))
      scalars.first_bad_tensor = range.tensor;
  }
}

void finish_norm(StepScalars& scalars) {
  scalars.finite = std::isfinite(scalars.norm_squared) && std::isfinite(scalars.loss_sum);
  const double norm = std::sqrt(scalars.norm_squared);
  scalars.gradient_scale = scalars.clip_norm > 0 && norm > scalars.clip_norm ? scalars.clip_norm / norm : 1.0;
}

void update_parameters(const kernels::Context& context, const OptimizerConfig& optimizer, Precision precision,
                       const StepScalars& scalars, std::span<const OwnedRange> ranges, const UpdateBuffers& buffers) {
  const std::vector<std::string_view> states = optimizer_states(optimizer, precision);
  const auto state = [&](std::string_view name, const OwnedRange& range) {
    const int index = state_index(states, name);
    return index < 0 ? TensorView() : f32_view(buffers.states[index] + range.state_begin, range.count);
  };
  const auto lr = static_cast<float>(scalars.learning_rate);
  const auto scale = static_cast<float>(scalars.gradient_scale);
  for (const OwnedRange& range : ranges) {
    const RangeViews views = views_of(range, precision, buffers);
    if (optimizer.kind == OptimizerKind::kAdamW) {
      const kernels::AdamWArgs args{lr,
                                    static_cast<float>(optimizer.beta1),
                                    static_cast<float>(optimizer.beta2),
                                    static_cast<float>(optimizer.eps),
                                    range.decay,
                                    scale,
                                    scalars.update_step};
      kernels::adamw(context, args, views.gradient, views.master, state("exp_avg", range), state("exp_avg_sq", range),
                     views.weight);
    } else {
      kernels::sgd(context, {lr, static_cast<float>(optimizer.momentum), range.decay, scale}, views.gradient,
                   views.master, state("momentum", range), views.weight);
    }
  }
}

}  // namespace strata

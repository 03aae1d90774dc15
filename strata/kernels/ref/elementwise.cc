// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/ref/elementwise.h"

#include <cmath>
#include <numbers>

#include "strata/base/random.h"

namespace strata::kernels::ref {
namespace {

double get(const TensorView& view, int64_t row, int64_t col) {
  if (view.dtype == DType::kBF16) return to_float(view.row<BF16>(row)[col]);
  return view.row<float>(row)[col];
}

void set(const TensorView& view, int64_t row, int64_t col, double value) {
  if (view.dtype == DType::kBF16)
    view.row<BF16>(row)[col] = to_bf16(static_cast<float>(value));
  else
    view.row<float>(row)[col] = static_cast<float>(value);
}

void clear(const TensorView& view) {
  for (int64_t row = 0; row < view.rows; ++row)
    for (int64_t col = 0; col < view.cols; ++col) set(view, row, col, 0);
}

// What dropout multiplies an element by: 0, or the f32 nearest 1 / (1 - rate).
double dropout_factor(const Dropout& dropout, int64_t row, int64_t col) {
  if (dropout.rate == 0.0f) return 1.0;
  const uint32_t word = philox(dropout.key, static_cast<uint64_t>(dropout.tokens[row]), static_cast<uint64_t>(col / 4))[col % 4];
  return uniform_from(word) >= dropout.rate ? 1.0f / (1.0f - dropout.rate) : 0.0;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// gelu(x) = x * gate(x); the tanh form equals a sigmoid: (1 + tanh(u)) / 2 = sigmoid(2u).
constexpr double kTanhLinear = 2.0 * 0.7978845608028654;  // 2 sqrt(2/pi)
constexpr double kTanhCubic = 0.044715;

double gelu(ActivationKind kind, double x) {
  if (kind == ActivationKind::kGeluExact) return x * 0.5 * std::erfc(-x / std::numbers::sqrt2);
  return x * sigmoid(kTanhLinear * (x + kTanhCubic * x * x * x));
}

double gelu_slope(ActivationKind kind, double x) {
  if (kind == ActivationKind::kGeluExact)
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
  const double gate = sigmoid(kTanhLinear * (x + kTanhCubic * x * x * x));
  return gate + x * gate * (1.0 - gate) * kTanhLinear * (1.0 + 3.0 * kTanhCubic * x * x);
}

}  // namespace

void norm_forward(const Context& context, NormKind kind, float eps, const TensorView& x, const TensorView& weight,
                  const TensorView& bias, const TensorView& y, const TensorView& stats) {
  const auto hidden = static_cast<double>(x.cols);
  for (int64_t t = 0; t < x.rows; ++t) {
    double mean = 0, squares = 0;
    if (kind == NormKind::kLayerNorm)
      for (int64_t c = 0; c < x.cols; ++c) mean += get(x, t, c) / hidden;
    for (int64_t c = 0; c < x.cols; ++c) squares += std::pow(get(x, t, c) - mean, 2) / hidden;
    set(stats, t, 0, mean);
    set(stats, t, 1, 1.0 / std::sqrt(squares + eps));
  }
  ref::norm_apply(context, kind, x, weight, bias, stats, y);
}

void norm_apply(const Context&, NormKind, const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& stats, const TensorView& y) {
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t c = 0; c < x.cols; ++c) {
      const double normal = (get(x, t, c) - get(stats, t, 0)) * get(stats, t, 1);
      set(y, t, c, normal * get(weight, 0, c) + (bias.empty() ? 0.0 : get(bias, 0, c)));
    }
}

void norm_backward_input(const Context&, NormKind kind, const TensorView& dy, const TensorView& x, const TensorView& weight,
                         const TensorView& stats, const TensorView& residual, const TensorView& dx) {
  const auto hidden = static_cast<double>(x.cols);
  for (int64_t t = 0; t < x.rows; ++t) {
    const double mean = get(stats, t, 0), rstd = get(stats, t, 1);
    double mean_g = 0, mean_gx = 0;
    for (int64_t c = 0; c < x.cols; ++c) {
      const double g = get(dy, t, c) * get(weight, 0, c);
      if (kind == NormKind::kLayerNorm) mean_g += g / hidden;
      mean_gx += g * (get(x, t, c) - mean) * rstd / hidden;
    }
    for (int64_t c = 0; c < x.cols; ++c) {
      const double normal = (get(x, t, c) - mean) * rstd;
      const double slope = rstd * (get(dy, t, c) * get(weight, 0, c) - mean_g - normal * mean_gx);
      set(dx, t, c, slope + (residual.empty() ? 0.0 : get(residual, t, c)));
    }
  }
}

void norm_backward_weight(const Context&, NormKind, const TensorView& dy, const TensorView& x, const TensorView& stats,
                          const TensorView& dweight, const TensorView& dbias, Write write) {
  for (int64_t c = 0; c < x.cols; ++c) {
    double sum_weight = write == Write::kAdd ? get(dweight, 0, c) : 0.0;
    double sum_bias = write == Write::kAdd && !dbias.empty() ? get(dbias, 0, c) : 0.0;
    for (int64_t t = 0; t < x.rows; ++t) {
      sum_weight += get(dy, t, c) * (get(x, t, c) - get(stats, t, 0)) * get(stats, t, 1);
      sum_bias += get(dy, t, c);
    }
    set(dweight, 0, c, sum_weight);
    if (!dbias.empty()) set(dbias, 0, c, sum_bias);
  }
}

void activation_forward(const Context&, ActivationKind kind, const TensorView& pre, const TensorView& act) {
  for (int64_t t = 0; t < act.rows; ++t)
    for (int64_t c = 0; c < act.cols; ++c) {
      const double x = get(pre, t, c);
      set(act, t, c, kind == ActivationKind::kSwiglu ? x * sigmoid(x) * get(pre, t, c + act.cols) : gelu(kind, x));
    }
}

void activation_backward(const Context&, ActivationKind kind, const TensorView& dact, const TensorView& pre,
                         const TensorView& dpre) {
  for (int64_t t = 0; t < dact.rows; ++t)
    for (int64_t c = 0; c < dact.cols; ++c) {
      const double x = get(pre, t, c), dy = get(dact, t, c);
      if (kind != ActivationKind::kSwiglu) {
        set(dpre, t, c, dy * gelu_slope(kind, x));
        continue;
      }
      const double up = get(pre, t, c + dact.cols), gate = sigmoid(x);
      set(dpre, t, c, dy * up * gate * (1.0 + x * (1.0 - gate)));
      set(dpre, t, c + dact.cols, dy * x * gate);
    }
}

void dropout(const Context&, const Dropout& dropout, const TensorView& x, const TensorView& y) {
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t c = 0; c < x.cols; ++c) set(y, t, c, get(x, t, c) * dropout_factor(dropout, t, c));
}

void add_residual(const Context&, const Dropout& dropout, const TensorView& x, const TensorView& residual,
                  const TensorView& y) {
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t c = 0; c < x.cols; ++c)
      set(y, t, c, get(residual, t, c) + get(x, t, c) * dropout_factor(dropout, t, c));
}

void rope(const Context&, const RopeArgs& args, std::span<const int32_t> positions, const TensorView& qkv) {
  const int64_t half = args.head_dim / 2;
  for (int64_t t = 0; t < qkv.rows; ++t)
    for (int64_t head = 0; head < args.heads + args.kv_heads; ++head)
      for (int64_t i = 0; i < half; ++i) {
        const double frequency = std::pow(static_cast<double>(args.theta), -2.0 * static_cast<double>(i) / static_cast<double>(args.head_dim));
        const double angle = args.direction * frequency * positions[t];
        const int64_t first = head * args.head_dim + i;
        const double a = get(qkv, t, first), b = get(qkv, t, first + half);
        set(qkv, t, first, a * std::cos(angle) - b * std::sin(angle));
        set(qkv, t, first + half, b * std::cos(angle) + a * std::sin(angle));
      }
}

void embedding_forward(const Context&, std::span<const int32_t> ids, std::span<const int32_t> positions,
                       const TensorView& token_table, const TensorView& position_table, const Dropout& dropout,
                       const TensorView& x) {
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t c = 0; c < x.cols; ++c) {
      const double position = position_table.empty() ? 0.0 : get(position_table, positions[t], c);
      set(x, t, c, (get(token_table, ids[t], c) + position) * dropout_factor(dropout, t, c));
    }
}

void embedding_backward(const Context& context, std::span<const int32_t> ids, std::span<const int32_t> positions,
                        const TensorView& dx, const Dropout& dropout, const TensorView& dtoken,
                        const TensorView& dposition, Write write_token, Write write_position) {
  ref::dropout(context, dropout, dx, dx);
  if (write_token == Write::kSet) clear(dtoken);
  if (write_position == Write::kSet) clear(dposition);
  for (int64_t t = 0; t < dx.rows; ++t)
    for (int64_t c = 0; c < dx.cols; ++c) {
      set(dtoken, ids[t], c, get(dtoken, ids[t], c) + get(dx, t, c));
      if (!dposition.empty()) set(dposition, positions[t], c, get(dposition, positions[t], c) + get(dx, t, c));
    }
}

void convert(const Context&, const TensorView& from, const TensorView& to) {
  for (int64_t row = 0; row < from.rows; ++row)
    for (int64_t col = 0; col < from.cols; ++col) set(to, row, col, get(from, row, col));
}

double sum_of_squares(const Context&, const TensorView& x) {
  double sum = 0;
  for (int64_t row = 0; row < x.rows; ++row)
    for (int64_t col = 0; col < x.cols; ++col) sum += get(x, row, col) * get(x, row, col);
  return sum;
}

void adamw(const Context&, const AdamWArgs& args, const TensorView& gradient, const TensorView& master,
           const TensorView& m, const TensorView& v, const TensorView& weight) {
  const double beta1 = args.beta1, beta2 = args.beta2, lr = args.lr;
  const double correction1 = 1.0 - std::pow(beta1, static_cast<double>(args.step));
  const double correction2 = 1.0 - std::pow(beta2, static_cast<double>(args.step));
  for (int64_t row = 0; row < master.rows; ++row)
    for (int64_t col = 0; col < master.cols; ++col) {
      const double g = get(gradient, row, col) * args.gradient_scale;
      const double new_m = beta1 * get(m, row, col) + (1.0 - beta1) * g;
      const double new_v = beta2 * get(v, row, col) + (1.0 - beta2) * g * g;
      const double w = get(master, row, col) * (1.0 - lr * args.decay) -
                       lr * (new_m / correction1) / (std::sqrt(new_v / correction2) + args.eps);
      set(m, row, col, new_m);
      set(v, row, col, new_v);
      set(master, row, col, w);
      set(weight, row, col, get(master, row, col));
    }
}

void sgd(const Context&, const SgdArgs& args, const TensorView& gradient, const TensorView& master,
         const TensorView& momentum_buffer, const TensorView& weight) {
  for (int64_t row = 0; row < master.rows; ++row)
    for (int64_t col = 0; col < master.cols; ++col) {
      double buffer = get(gradient, row, col) * args.gradient_scale;
      if (!momentum_buffer.empty()) {
        buffer += static_cast<double>(args.momentum) * get(momentum_buffer, row, col);
        set(momentum_buffer, row, col, buffer);
      }
      const double w = get(master, row, col);
      set(master, row, col, w - static_cast<double>(args.lr) * (buffer + static_cast<double>(args.decay) * w));
      set(weight, row, col, get(master, row, col));
    }
}

}  // namespace strata::kernels::ref

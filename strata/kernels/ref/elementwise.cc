// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/ref/elementwise.h"

#include <cmath>
#include <numbers>

#include "strata/base/random.h"
#include "strata/kernels/ref/element.h"

namespace strata::kernels::ref {
namespace {

void clear(const TensorView& view) {
  for (int64_t row = 0; row < view.rows; ++row)
    for (int64_t col = 0; col < view.cols; ++col) write_element(view, row, col, 0);
}

// What dropout multiplies an element by: 0, or the f32 nearest 1 / (1 - rate).
double dropout_factor(const Dropout& dropout, int64_t row, int64_t col) {
  if (dropout.rate == 0.0f) return 1.0;
  const uint32_t word =
      philox(dropout.key, static_cast<uint64_t>(dropout.tokens[row]), static_cast<uint64_t>(col / 4))[col % 4];
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
      for (int64_t c = 0; c < x.cols; ++c) mean += read_element(x, t, c) / hidden;
    for (int64_t c = 0; c < x.cols; ++c) squares += std::pow(read_element(x, t, c) - mean, 2) / hidden;
    write_element(stats, t, 0, mean);
    write_element(stats, t, 1, 1.0 / std::sqrt(squares + eps));
  }
  ref::norm_apply(context, kind, x, weight, bias, stats, y);
}

void norm_apply(const Context&, NormKind, const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& stats, const TensorView& y) {
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t c = 0; c < x.cols; ++c) {
      const double normal = (read_element(x, t, c) - read_element(stats, t, 0)) * read_element(stats, t, 1);
      write_element(y, t, c, normal * read_element(weight, 0, c) + (bias.empty() ? 0.0 : read_element(bias, 0, c)));
    }
}

void norm_backward_input(const Context&, NormKind kind, const TensorView& dy, const TensorView& x,
                         const TensorView& weight, const TensorView& stats, const TensorView& residual,
                         const TensorView& dx) {
  const auto hidden = static_cast<double>(x.cols);
  for (int64_t t = 0; t < x.rows; ++t) {
    const double mean = read_element(stats, t, 0), rstd = read_element(stats, t, 1);
    double mean_g = 0, mean_gx = 0;
    for (int64_t c = 0; c < x.cols; ++c) {
      const double g = read_element(dy, t, c) * read_element(weight, 0, c);
      if (kind == NormKind::kLayerNorm) mean_g += g / hidden;
      mean_gx += g * (read_element(x, t, c) - mean) * rstd / hidden;
    }
    for (int64_t c = 0; c < x.cols; ++c) {
      const double normal = (read_element(x, t, c) - mean) * rstd;
      const double slope = rstd * (read_element(dy, t, c) * read_element(weight, 0, c) - mean_g - normal * mean_gx);
      write_element(dx, t, c, slope + (residual.empty() ? 0.0 : read_element(residual, t, c)));
    }
  }
}

void norm_backward_weight(const Context&, NormKind, const TensorView& dy, const TensorView& x, const TensorView& stats,
                          const TensorView& dweight, const TensorView& dbias, Write write) {
  for (int64_t c = 0; c < x.cols; ++c) {
    double sum_weight = write == Write::kAdd && !dweight.empty() ? read_element(dweight, 0, c) : 0.0;
    double sum_bias = write == Write::kAdd && !dbias.empty() ? read_element(dbias, 0, c) : 0.0;
    for (int64_t t = 0; t < x.rows; ++t) {
      sum_weight +=
          read_element(dy, t, c) * (read_element(x, t, c) - read_element(stats, t, 0)) * read_element(stats, t, 1);
      sum_bias += read_element(dy, t, c);
    }
    if (!dweight.empty()) write_element(dweight, 0, c, sum_weight);
    if (!dbias.empty()) write_element(dbias, 0, c, sum_bias);
  }
}

void activation_forward(const Context&, ActivationKind kind, const TensorView& pre, const TensorView& act) {
  for (int64_t t = 0; t < act.rows; ++t)
    for (int64_t c = 0; c < act.cols; ++c) {
      const double x = read_element(pre, t, c);
      write_element(
          act, t, c,
          kind == ActivationKind::kSwiglu ? x * sigmoid(x) * read_element(pre, t, c + act.cols) : gelu(kind, x));
    }
}

void activation_backward(const Context&, ActivationKind kind, const TensorView& dact, const TensorView& pre,
                         const TensorView& dpre) {
  for (int64_t t = 0; t < dact.rows; ++t)
    for (int64_t c = 0; c < dact.cols; ++c) {
      const double x = read_element(pre, t, c), dy = read_element(dact, t, c);
      if (kind != ActivationKind::kSwiglu) {
        write_element(dpre, t, c, dy * gelu_slope(kind, x));
        continue;
      }
      const double up = read_element(pre, t, c + dact.cols), gate = sigmoid(x);
      write_element(dpre, t, c, dy * up * gate * (1.0 + x * (1.0 - gate)));
      write_element(dpre, t, c + dact.cols, dy * x * gate);
    }
}

void dropout(const Context&, const Dropout& dropout, const TensorView& x, const TensorView& y) {
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t c = 0; c < x.cols; ++c) write_element(y, t, c, read_element(x, t, c) * dropout_factor(dropout, t, c));
}

void add_residual(const Context&, const Dropout& dropout, const TensorView& x, const TensorView& residual,
                  const TensorView& y) {
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t c = 0; c < x.cols; ++c)
      write_element(y, t, c, read_element(residual, t, c) + read_element(x, t, c) * dropout_factor(dropout, t, c));
}

void rope(const Context&, const RopeArgs& args, std::span<const int32_t> positions, const TensorView& qkv) {
  const int64_t half = args.head_dim / 2;
  for (int64_t t = 0; t < qkv.rows; ++t)
    for (int64_t head = 0; head < args.heads + args.kv_heads; ++head)
      for (int64_t i = 0; i < half; ++i) {
        const double frequency = std::pow(static_cast<double>(args.theta),
                                          -2.0 * static_cast<double>(i) / static_cast<double>(args.head_dim));
        const double angle = args.direction * frequency * positions[t];
        const int64_t first = head * args.head_dim + i;
        const double a = read_element(qkv, t, first), b = read_element(qkv, t, first + half);
        write_element(qkv, t, first, a * std::cos(angle) - b * std::sin(angle));
        write_element(qkv, t, first + half, b * std::cos(angle) + a * std::sin(angle));
      }
}

namespace {

// Row `index` of a whole table in its part; -1 where it is in another.
int64_t row_in_part(const TablePart& table, int64_t index) {
  return index >= table.first && index < table.first + table.rows.rows ? index - table.first : -1;
}

}  // namespace

void embedding_forward(const Context&, std::span<const int32_t> ids, std::span<const int32_t> positions,
                       const TablePart& token_table, const TablePart& position_table, const Dropout& dropout,
                       const TensorView& x) {
  for (int64_t t = 0; t < x.rows; ++t) {
    const int64_t token = row_in_part(token_table, ids[t]), position = row_in_part(position_table, positions[t]);
    for (int64_t c = 0; c < x.cols; ++c) {
      const double sum = (token < 0 ? 0.0 : read_element(token_table.rows, token, c)) +
                         (position < 0 ? 0.0 : read_element(position_table.rows, position, c));
      write_element(x, t, c, sum * dropout_factor(dropout, t, c));
    }
  }
}

void embedding_backward(const Context& context, std::span<const int32_t> ids, std::span<const int32_t> positions,
                        const TensorView& dx, const Dropout& dropout, const TablePart& dtoken,
                        const TablePart& dposition, Write write_token, Write write_position) {
  ref::dropout(context, dropout, dx, dx);
  if (write_token == Write::kSet) clear(dtoken.rows);
  if (write_position == Write::kSet) clear(dposition.rows);
  const auto add = [&](const TablePart& table, int64_t row, int64_t t, int64_t c) {
    if (row >= 0) write_element(table.rows, row, c, read_element(table.rows, row, c) + read_element(dx, t, c));
  };
  for (int64_t t = 0; t < dx.rows; ++t)
    for (int64_t c = 0; c < dx.cols; ++c) {
      add(dtoken, row_in_part(dtoken, ids[t]), t, c);
      add(dposition, row_in_part(dposition, positions[t]), t, c);
    }
}

void convert(const Context&, const TensorView& from, const TensorView& to) {
  for (int64_t row = 0; row < from.rows; ++row)
    for (int64_t col = 0; col < from.cols; ++col) write_element(to, row, col, read_element(from, row, col));
}

double sum_of_squares(const Context&, const TensorView& x) {
  double sum = 0;
  for (int64_t row = 0; row < x.rows; ++row)
    for (int64_t col = 0; col < x.cols; ++col) sum += read_element(x, row, col) * read_element(x, row, col);
  return sum;
}

void adamw(const Context&, const AdamWArgs& args, const TensorView& gradient, const TensorView& master,
           const TensorView& m, const TensorView& v, const TensorView& weight) {
  const double beta1 = args.beta1, beta2 = args.beta2, lr = args.lr;
  const double correction1 = 1.0 - std::pow(beta1, static_cast<double>(args.step));
  const double correction2 = 1.0 - std::pow(beta2, static_cast<double>(args.step));
  for (int64_t row = 0; row < master.rows; ++row)
    for (int64_t col = 0; col < master.cols; ++col) {
      const double g = read_element(gradient, row, col) * args.gradient_scale;
      const double new_m = beta1 * read_element(m, row, col) + (1.0 - beta1) * g;
      const double new_v = beta2 * read_element(v, row, col) + (1.0 - beta2) * g * g;
      const double w = read_element(master, row, col) * (1.0 - lr * args.decay) -
                       lr * (new_m / correction1) / (std::sqrt(new_v / correction2) + args.eps);
      write_element(m, row, col, new_m);
      write_element(v, row, col, new_v);
      write_element(master, row, col, w);
      write_element(weight, row, col, read_element(master, row, col));
    }
}

void sgd(const Context&, const SgdArgs& args, const TensorView& gradient, const TensorView& master,
         const TensorView& momentum_buffer, const TensorView& weight) {
  for (int64_t row = 0; row < master.rows; ++row)
    for (int64_t col = 0; col < master.cols; ++col) {
      double buffer = read_element(gradient, row, col) * args.gradient_scale;
      if (!momentum_buffer.empty()) {
        buffer += static_cast<double>(args.momentum) * read_element(momentum_buffer, row, col);
        write_element(momentum_buffer, row, col, buffer);
      }
      const double w = read_element(master, row, col);
      write_element(master, row, col,
                    w - static_cast<double>(args.lr) * (buffer + static_cast<double>(args.decay) * w));
      write_element(weight, row, col, read_element(master, row, col));
    }
}

}  // namespace strata::kernels::ref

// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm. A row is read from memory once; its further passes hit the first-level cache.
#include "strata/kernels/cpu/shapes.h"
#include "strata/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/kernels/cpu/norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "strata/kernels/cpu/simd-inl.h"

#ifndef STRATA_KERNELS_CPU_NORM_ARGS
#define STRATA_KERNELS_CPU_NORM_ARGS
namespace strata::kernels {

// Absent views are empty.
struct NormArgs {
  NormKind kind = NormKind::kLayerNorm;
  float eps = 0;
  TensorView x = {}, weight = {}, bias = {}, stats = {}, y = {};
  TensorView dy = {}, residual = {}, dx = {};  // backward
  TensorView dweight = {}, dbias = {};
};

}  // namespace strata::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
const T* row_or_null(const TensorView& view, int64_t row) {
  return view.empty() ? nullptr : view.row<T>(row);
}

template <typename T>
void apply_row(const NormArgs& args, int64_t row) {
  const T* x = args.x.row<T>(row);
  const T* weight = args.weight.row<T>(0);
  const T* bias = row_or_null<T>(args.bias, 0);
  const float mean = args.stats.row<float>(row)[0], rstd = args.stats.row<float>(row)[1];
  T* y = args.y.row<T>(row);
  for_each_vector(args.x.cols, [&](auto d, int64_t c) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(load(d, x + c), hn::Set(d, mean)), hn::Set(d, rstd));
    const auto shift = bias != nullptr ? load(d, bias + c) : hn::Zero(d);
    store(d, hn::MulAdd(normal, load(d, weight + c), shift), y + c);
  });
}

template <typename T>
void measure_row(const NormArgs& args, int64_t row) {
  const T* x = args.x.row<T>(row);
  const auto hidden = static_cast<float>(args.x.cols);
  float mean = 0.0f;
  if (args.kind == NormKind::kLayerNorm)
    mean = sum_over(args.x.cols, [&](auto d, int64_t c) HWY_ATTR { return load(d, x + c); }) / hidden;
  const float squares = sum_over(args.x.cols, [&](auto d, int64_t c) HWY_ATTR {
    const auto centred = hn::Sub(load(d, x + c), hn::Set(d, mean));
    return hn::Mul(centred, centred);
  });
  args.stats.row<float>(row)[0] = mean;
  args.stats.row<float>(row)[1] = 1.0f / std::sqrt(squares / hidden + args.eps);
}

template <typename T>
void backward_input_row(const NormArgs& args, int64_t row) {
  const T* dy = args.dy.row<T>(row);
  const T* x = args.x.row<T>(row);
  const T* weight = args.weight.row<T>(0);
  const T* residual = row_or_null<T>(args.residual, row);
  T* dx = args.dx.row<T>(row);
  const float mean = args.stats.row<float>(row)[0], rstd = args.stats.row<float>(row)[1];
  const auto hidden = static_cast<float>(args.x.cols);
  const auto slope = [&](auto d, int64_t c) HWY_ATTR { return hn::Mul(load(d, dy + c), load(d, weight + c)); };
  const auto centred = [&](auto d, int64_t c) HWY_ATTR { return hn::Sub(load(d, x + c), hn::Set(d, mean)); };
  float mean_slope = 0.0f;
  if (args.kind == NormKind::kLayerNorm) mean_slope = sum_over(args.x.cols, slope) / hidden;
  const float along = rstd * rstd / hidden * sum_over(args.x.cols, [&](auto d, int64_t c) HWY_ATTR {
                        return hn::Mul(slope(d, c), centred(d, c));
                      });
  for_each_vector(args.x.cols, [&](auto d, int64_t c) HWY_ATTR {
    const auto across = hn::NegMulAdd(centred(d, c), hn::Set(d, along), hn::Sub(slope(d, c), hn::Set(d, mean_slope)));
    const auto base = residual != nullptr ? load(d, residual + c) : hn::Zero(d);
    store(d, hn::MulAdd(across, hn::Set(d, rstd), base), dx + c);
  });
}

// Adds the contributions of kRows tokens from `row` on to channels [begin, end).
template <typename T, int kRows>
void add_weight_gradients(const NormArgs& args, int64_t row, int64_t begin, int64_t end) {
  const T* dy[kRows];
  const T* x[kRows];
  float mean[kRows], rstd[kRows];
  for (int k = 0; k < kRows; ++k) {
    dy[k] = args.dy.row<T>(row + k) + begin;
    x[k] = args.x.row<T>(row + k) + begin;
    mean[k] = args.stats.row<float>(row + k)[0];
    rstd[k] = args.stats.row<float>(row + k)[1];
  }
  float* dweight = args.dweight.empty() ? nullptr : args.dweight.row<float>(0) + begin;
  float* dbias = args.dbias.empty() ? nullptr : args.dbias.row<float>(0) + begin;
  for_each_vector(end - begin, [&](auto d, int64_t c) HWY_ATTR {
    auto weight_sum = hn::Zero(d), bias_sum = hn::Zero(d);
    for (int k = 0; k < kRows; ++k) {
      const auto slope = load(d, dy[k] + c);
      const auto normal = hn::Mul(hn::Sub(load(d, x[k] + c), hn::Set(d, mean[k])), hn::Set(d, rstd[k]));
      weight_sum = hn::MulAdd(slope, normal, weight_sum);
      bias_sum = hn::Add(bias_sum, slope);
    }
    if (dweight != nullptr) store(d, hn::Add(load(d, dweight + c), weight_sum), dweight + c);
    if (dbias != nullptr) store(d, hn::Add(load(d, dbias + c), bias_sum), dbias + c);
  });
}

template <typename T>
void forward_rows_of(const NormArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    measure_row<T>(args, row);
    apply_row<T>(args, row);
  }
}

template <typename T>
void apply_rows_of(const NormArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) apply_row<T>(args, row);
}

template <typename T>
void backward_input_rows_of(const NormArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) backward_input_row<T>(args, row);
}

template <typename T>
void backward_weight_channels_of(const NormArgs& args, int64_t begin, int64_t end) {
  constexpr int kRows = 4;
  int64_t row = 0;
  for (; row + kRows <= args.x.rows; row += kRows) add_weight_gradients<T, kRows>(args, row, begin, end);
  for (; row < args.x.rows; ++row) add_weight_gradients<T, 1>(args, row, begin, end);
}

void norm_forward_rows(const NormArgs& args, int64_t begin, int64_t end) {
  args.x.dtype == DType::kBF16 ? forward_rows_of<BF16>(args, begin, end) : forward_rows_of<float>(args, begin, end);
}
void norm_apply_rows(const NormArgs& args, int64_t begin, int64_t end) {
  args.x.dtype == DType::kBF16 ? apply_rows_of<BF16>(args, begin, end) : apply_rows_of<float>(args, begin, end);
}
void norm_backward_input_rows(const NormArgs& args, int64_t begin, int64_t end) {
  args.x.dtype == DType::kBF16 ? backward_input_rows_of<BF16>(args, begin, end)
                               : backward_input_rows_of<float>(args, begin, end);
}
void norm_backward_weight_channels(const NormArgs& args, int64_t begin, int64_t end) {
  args.x.dtype == DType::kBF16 ? backward_weight_channels_of<BF16>(args, begin, end)
                               : backward_weight_channels_of<float>(args, begin, end);
}

}  // namespace
}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace {

HWY_EXPORT(norm_forward_rows);
HWY_EXPORT(norm_apply_rows);
HWY_EXPORT(norm_backward_input_rows);
HWY_EXPORT(norm_backward_weight_channels);

void check_forward(const NormArgs& args) {
  check_storage("norm x", args.x);
  check_view("norm weight", args.weight, 1, args.x.cols, args.x.dtype);
  if (!args.bias.empty()) check_view("norm bias", args.bias, 1, args.x.cols, args.x.dtype);
  check_view("norm stats", args.stats, args.x.rows, 2, DType::kF32);
  check_view("norm y", args.y, args.x.rows, args.x.cols, args.x.dtype);
}

void clear_vector(const TensorView& vector) {
  if (!vector.empty()) std::fill_n(vector.row<float>(0), vector.cols, 0.0f);
}

}  // namespace

void norm_forward(const Context& context, NormKind kind, float eps, const TensorView& x, const TensorView& weight,
                  const TensorView& bias, const TensorView& y, const TensorView& stats) {
  const NormArgs args = {.kind = kind, .eps = eps, .x = x, .weight = weight, .bias = bias, .stats = stats, .y = y};
  check_forward(args);
  for_row_parts(context.team, x.rows, x.cols, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_forward_rows)(args, begin, end);
  });
}

void norm_apply(const Context& context, NormKind kind, const TensorView& x, const TensorView& weight,
                const TensorView& bias, const TensorView& stats, const TensorView& y) {
  const NormArgs args = {.kind = kind, .x = x, .weight = weight, .bias = bias, .stats = stats, .y = y};
  check_forward(args);
  for_row_parts(context.team, x.rows, x.cols, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_apply_rows)(args, begin, end);
  });
}

void norm_backward_input(const Context& context, NormKind kind, const TensorView& dy, const TensorView& x,
                         const TensorView& weight, const TensorView& stats, const TensorView& residual,
                         const TensorView& dx) {
  const NormArgs args = {
      .kind = kind, .x = x, .weight = weight, .stats = stats, .dy = dy, .residual = residual, .dx = dx};
  check_storage("norm x", x);
  check_view("norm dy", dy, x.rows, x.cols, x.dtype);
  check_view("norm weight", weight, 1, x.cols, x.dtype);
  check_view("norm stats", stats, x.rows, 2, DType::kF32);
  if (!residual.empty()) check_view("norm residual", residual, x.rows, x.cols, x.dtype);
  check_view("norm dx", dx, x.rows, x.cols, x.dtype);
  for_row_parts(context.team, x.rows, x.cols, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_backward_input_rows)(args, begin, end);
  });
}

void norm_backward_weight(const Context& context, NormKind kind, const TensorView& dy, const TensorView& x,
                          const TensorView& stats, const TensorView& dweight, const TensorView& dbias, Write write) {
  if (dweight.empty() && dbias.empty()) return;
  const NormArgs args = {.kind = kind, .x = x, .stats = stats, .dy = dy, .dweight = dweight, .dbias = dbias};
  check_storage("norm x", x);
  check_view("norm dy", dy, x.rows, x.cols, x.dtype);
  check_view("norm stats", stats, x.rows, 2, DType::kF32);
  if (!dweight.empty()) check_view("norm dweight", dweight, 1, x.cols, DType::kF32);
  if (!dbias.empty()) check_view("norm dbias", dbias, 1, x.cols, DType::kF32);
  if (write == Write::kSet) {
    clear_vector(dweight);
    clear_vector(dbias);
  }
  // Split over channels: every channel sums its tokens in the same order for any number of threads.
  context.team.parallel_for(x.cols, part_grain(x.rows, 64), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_backward_weight_channels)(args, begin, end);
  });
}

}  // namespace strata::kernels
#endif

// SPDX-License-Identifier: Apache-2.0
// What runs over parameters once a step: the sum of squares, AdamW and SGD, each one pass over memory.
#include "strata/kernels/cpu/shapes.h"
#include "strata/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/kernels/cpu/parameters.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <array>
#include <cmath>

#include "strata/kernels/cpu/simd-inl.h"

#ifndef STRATA_KERNELS_CPU_PARAMETERS_ARGS
#define STRATA_KERNELS_CPU_PARAMETERS_ARGS
namespace strata::kernels {

// An update in the terms of the vector loop; pointers at element 0 of the run.
struct AdamWPass {
  const float* gradient = nullptr;
  float* master = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  BF16* rounded = nullptr;  // null: the master is the compute copy
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size;           // lr / (1 - beta1^step)
  float inverse_correction;  // 1 / sqrt(1 - beta2^step)
  float eps, shrink;         // shrink: lr * decay
};

struct SgdPass {
  const float* gradient = nullptr;
  float* master = nullptr;
  float* buffer = nullptr;  // null: no momentum
  BF16* rounded = nullptr;
  float lr, momentum, decay, gradient_scale;
};

}  // namespace strata::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace {

double sum_squares(const float* x, int64_t count) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto x0 = hn::PromoteTo(d, hn::LoadU(half, x + i)), x1 = hn::PromoteTo(d, hn::LoadU(half, x + i + lanes));
    const auto x2 = hn::PromoteTo(d, hn::LoadU(half, x + i + 2 * lanes));
    const auto x3 = hn::PromoteTo(d, hn::LoadU(half, x + i + 3 * lanes));
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2);
    sum3 = hn::MulAdd(x3, x3, sum3);
  }
  double rest = 0;
  for (; i < count; ++i) rest = std::fma(static_cast<double>(x[i]), static_cast<double>(x[i]), rest);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)))) + rest;
}

void adamw_elements(const AdamWPass& pass, int64_t begin, int64_t end) {
  for_each_vector(end - begin, [&](auto d, int64_t offset) HWY_ATTR {
    const int64_t i = begin + offset;
    const auto g = hn::Mul(hn::LoadU(d, pass.gradient + i), hn::Set(d, pass.gradient_scale));
    const auto m =
        hn::MulAdd(hn::LoadU(d, pass.m + i), hn::Set(d, pass.beta1), hn::Mul(g, hn::Set(d, pass.one_minus_beta1)));
    const auto v = hn::MulAdd(hn::LoadU(d, pass.v + i), hn::Set(d, pass.beta2),
                              hn::Mul(hn::Mul(g, g), hn::Set(d, pass.one_minus_beta2)));
    const auto deviation = hn::MulAdd(hn::Sqrt(v), hn::Set(d, pass.inverse_correction), hn::Set(d, pass.eps));
    const auto move = hn::Div(hn::Mul(m, hn::Set(d, pass.step_size)), deviation);
    const auto old = hn::LoadU(d, pass.master + i);
    const auto w = hn::Sub(old, hn::MulAdd(old, hn::Set(d, pass.shrink), move));
    hn::StoreU(m, d, pass.m + i);
    hn::StoreU(v, d, pass.v + i);
    hn::StoreU(w, d, pass.master + i);
    if (pass.rounded != nullptr) store(d, w, pass.rounded + i);
  });
}

void sgd_elements(const SgdPass& pass, int64_t begin, int64_t end) {
  for_each_vector(end - begin, [&](auto d, int64_t offset) HWY_ATTR {
    const int64_t i = begin + offset;
    auto g = hn::Mul(hn::LoadU(d, pass.gradient + i), hn::Set(d, pass.gradient_scale));
    if (pass.buffer != nullptr) {
      g = hn::MulAdd(hn::LoadU(d, pass.buffer + i), hn::Set(d, pass.momentum), g);
      hn::StoreU(g, d, pass.buffer + i);
    }
    const auto old = hn::LoadU(d, pass.master + i);
    const auto w = hn::NegMulAdd(hn::MulAdd(old, hn::Set(d, pass.decay), g), hn::Set(d, pass.lr), old);
    hn::StoreU(w, d, pass.master + i);
    if (pass.rounded != nullptr) store(d, w, pass.rounded + i);
  });
}

}  // namespace
}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace {

HWY_EXPORT(sum_squares);
HWY_EXPORT(adamw_elements);
HWY_EXPORT(sgd_elements);

void check_run(const char* name, const TensorView& run, const TensorView& like) {
  check_view(name, run, like.rows, like.cols, DType::kF32);
  STRATA_CHECK(run.contiguous(), "{} has stride {} for {} columns", name, run.row_stride, run.cols);
}

// The bf16 compute copy, or null when the f32 master itself computes.
BF16* rounded_copy(const TensorView& weight, const TensorView& master) {
  check_storage("weight", weight);
  check_view("weight", weight, master.rows, master.cols, weight.dtype);
  STRATA_CHECK(weight.contiguous(), "weight has stride {} for {} columns", weight.row_stride, weight.cols);
  if (weight.dtype == DType::kBF16) return weight.row<BF16>(0);
  STRATA_CHECK(weight.data == master.data, "an f32 weight must be the master itself");
  return nullptr;
}

}  // namespace

double sum_of_squares(const Context& context, const TensorView& x) {
  check_run("vector", x, x);
  constexpr int64_t kMaxBlocks = 256, kBlockMultiple = 4096;
  const int64_t count = x.num_elements();
  const int64_t multiples = (count + kMaxBlocks * kBlockMultiple - 1) / (kMaxBlocks * kBlockMultiple);
  const int64_t block = std::max<int64_t>(1, multiples) * kBlockMultiple;
  const int64_t num_blocks = (count + block - 1) / block;
  std::array<double, kMaxBlocks> sums;
  context.team.parallel_for(num_blocks, 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      sums[i] = HWY_DYNAMIC_DISPATCH(sum_squares)(x.row<float>(0) + i * block, std::min(block, count - i * block));
  });
  double sum = 0;
  for (int64_t i = 0; i < num_blocks; ++i) sum += sums[i];
  return sum;
}

void adamw(const Context& context, const AdamWArgs& args, const TensorView& gradient, const TensorView& master,
           const TensorView& m, const TensorView& v, const TensorView& weight) {
  STRATA_CHECK(args.step >= 1, "step {}", args.step);
  check_run("master", master, master);
  check_run("gradient", gradient, master);
  check_run("m", m, master);
  check_run("v", v, master);
  const double beta1 = args.beta1, beta2 = args.beta2;
  const double correction1 = 1.0 - std::pow(beta1, static_cast<double>(args.step));
  const double correction2 = 1.0 - std::pow(beta2, static_cast<double>(args.step));
  const AdamWPass pass = {.gradient = gradient.row<float>(0),
                          .master = master.row<float>(0),
                          .m = m.row<float>(0),
                          .v = v.row<float>(0),
                          .rounded = rounded_copy(weight, master),
                          .gradient_scale = args.gradient_scale,
                          .beta1 = args.beta1,
                          .one_minus_beta1 = static_cast<float>(1.0 - beta1),
                          .beta2 = args.beta2,
                          .one_minus_beta2 = static_cast<float>(1.0 - beta2),
                          .step_size = static_cast<float>(args.lr / correction1),
                          .inverse_correction = static_cast<float>(1.0 / std::sqrt(correction2)),
                          .eps = args.eps,
                          .shrink = args.lr * args.decay};
  context.team.parallel_for(master.num_elements(), kMinPartElements, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(adamw_elements)(pass, begin, end);
  });
}

void sgd(const Context& context, const SgdArgs& args, const TensorView& gradient, const TensorView& master,
         const TensorView& momentum_buffer, const TensorView& weight) {
  check_run("master", master, master);
  check_run("gradient", gradient, master);
  STRATA_CHECK(momentum_buffer.empty() == (args.momentum == 0.0f), "momentum {} {} a buffer", args.momentum,
               momentum_buffer.empty() ? "without" : "with");
  if (!momentum_buffer.empty()) check_run("momentum buffer", momentum_buffer, master);
  const SgdPass pass = {.gradient = gradient.row<float>(0),
                        .master = master.row<float>(0),
                        .buffer = momentum_buffer.empty() ? nullptr : momentum_buffer.row<float>(0),
                        .rounded = rounded_copy(weight, master),
                        .lr = args.lr,
                        .momentum = args.momentum,
                        .decay = args.decay,
                        .gradient_scale = args.gradient_scale};
  context.team.parallel_for(master.num_elements(), kMinPartElements, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(sgd_elements)(pass, begin, end);
  });
}

}  // namespace strata::kernels
#endif

// SPDX-License-Identifier: Apache-2.0
// GELU (tanh and exact) and SwiGLU.
#include "strata/kernels/cpu/shapes.h"
#include "strata/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/kernels/cpu/activation.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "strata/kernels/cpu/simd-inl.h"
#include "strata/kernels/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace {

// (1 + tanh(u)) / 2 = logistic(2u) with 2u = x (kLinear + kCubic x^2)
constexpr float kLinear = 1.5957691216f;    // 2 sqrt(2/pi)
constexpr float kCubic = 0.0713548162726f;  // 0.044715 kLinear

struct GeluTanh {
  template <class D>
  HWY_INLINE hn::Vec<D> gate(D d, hn::Vec<D> x) const {
    const auto inner = hn::MulAdd(hn::Mul(x, x), hn::Set(d, kCubic), hn::Set(d, kLinear));
    return logistic(d, hn::Mul(x, inner));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> slope(D d, hn::Vec<D> x) const {
    const auto open = gate(d, x);
    const auto inner_slope = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 3.0f * kCubic), hn::Set(d, kLinear));
    const auto gate_slope = hn::Mul(hn::NegMulAdd(open, open, open), inner_slope);
    return hn::MulAdd(x, gate_slope, open);
  }
};

struct GeluExact {
  template <class D>
  HWY_INLINE hn::Vec<D> gate(D d, hn::Vec<D> x) const {
    return normal_distribution(d, x).cumulative;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> slope(D d, hn::Vec<D> x) const {
    const Normal<D> normal = normal_distribution(d, x);
    return hn::MulAdd(hn::Mul(x, hn::Set(d, 0.3989422804f)), normal.unscaled_density,
                      normal.cumulative);  // 1/sqrt(2 pi)
  }
};

template <typename T, class Gelu>
void gelu_forward(const Gelu& gelu, const TensorView& pre, const TensorView& act, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = pre.row<T>(row);
    T* y = act.row<T>(row);
    for_each_vector(act.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto value = load(d, x + c);
      store(d, hn::Mul(value, gelu.gate(d, value)), y + c);
    });
  }
}

template <typename T, class Gelu>
void gelu_backward(const Gelu& gelu, const TensorView& dact, const TensorView& pre, const TensorView& dpre,
                   int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* dy = dact.row<T>(row);
    const T* x = pre.row<T>(row);
    T* dx = dpre.row<T>(row);
    for_each_vector(dact.cols, [&](auto d, int64_t c) HWY_ATTR {
      store(d, hn::Mul(load(d, dy + c), gelu.slope(d, load(d, x + c))), dx + c);
    });
  }
}

template <typename T>
void swiglu_forward(const TensorView& pre, const TensorView& act, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = pre.row<T>(row);
    const T* up = gate + act.cols;
    T* y = act.row<T>(row);
    for_each_vector(act.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto x = load(d, gate + c);
      store(d, hn::Mul(hn::Mul(x, logistic(d, x)), load(d, up + c)), y + c);
    });
  }
}

template <typename T>
void swiglu_backward(const TensorView& dact, const TensorView& pre, const TensorView& dpre, int64_t begin,
                     int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* dy = dact.row<T>(row);
    const T* gate = pre.row<T>(row);
    const T* up = gate + dact.cols;
    T* dgate = dpre.row<T>(row);
    T* dup = dgate + dact.cols;
    for_each_vector(dact.cols, [&](auto d, int64_t c) HWY_ATTR {
      const auto x = load(d, gate + c), slope = load(d, dy + c), factor = load(d, up + c);
      const auto open = logistic(d, x), silu = hn::Mul(x, open);
      store(d, hn::Mul(slope, silu), dup + c);
      // silu'(x) = open + x open (1 - open) = open + silu - silu open
      store(d, hn::Mul(hn::Mul(slope, factor), hn::Add(open, hn::NegMulAdd(silu, open, silu))), dgate + c);
    });
  }
}

template <typename T>
void forward_rows_of(ActivationKind kind, const TensorView& pre, const TensorView& act, int64_t begin, int64_t end) {
  switch (kind) {
    case ActivationKind::kGeluTanh: return gelu_forward<T>(GeluTanh(), pre, act, begin, end);
    case ActivationKind::kGeluExact: return gelu_forward<T>(GeluExact(), pre, act, begin, end);
    case ActivationKind::kSwiglu: return swiglu_forward<T>(pre, act, begin, end);
  }
}

template <typename T>
void backward_rows_of(ActivationKind kind, const TensorView& dact, const TensorView& pre, const TensorView& dpre,
                      int64_t begin, int64_t end) {
  switch (kind) {
    case ActivationKind::kGeluTanh: return gelu_backward<T>(GeluTanh(), dact, pre, dpre, begin, end);
    case ActivationKind::kGeluExact: return gelu_backward<T>(GeluExact(), dact, pre, dpre, begin, end);
    case ActivationKind::kSwiglu: return swiglu_backward<T>(dact, pre, dpre, begin, end);
  }
}

void activation_forward_rows(ActivationKind kind, const TensorView& pre, const TensorView& act, int64_t begin,
                             int64_t end) {
  pre.dtype == DType::kBF16 ? forward_rows_of<BF16>(kind, pre, act, begin, end)
                            : forward_rows_of<float>(kind, pre, act, begin, end);
}

void activation_backward_rows(ActivationKind kind, const TensorView& dact, const TensorView& pre,
                              const TensorView& dpre, int64_t begin, int64_t end) {
  pre.dtype == DType::kBF16 ? backward_rows_of<BF16>(kind, dact, pre, dpre, begin, end)
                            : backward_rows_of<float>(kind, dact, pre, dpre, begin, end);
}

}  // namespace
}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace {

HWY_EXPORT(activation_forward_rows);
HWY_EXPORT(activation_backward_rows);

int64_t pre_width(ActivationKind kind, int64_t ffn) { return kind == ActivationKind::kSwiglu ? 2 * ffn : ffn; }

}  // namespace

void activation_forward(const Context& context, ActivationKind kind, const TensorView& pre, const TensorView& act) {
  check_storage("activation", act);
  check_view("pre-activation", pre, act.rows, pre_width(kind, act.cols), act.dtype);
  for_row_parts(context.team, act.rows, act.cols, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(activation_forward_rows)(kind, pre, act, begin, end);
  });
}

void activation_backward(const Context& context, ActivationKind kind, const TensorView& dact, const TensorView& pre,
                         const TensorView& dpre) {
  check_storage("activation gradient", dact);
  check_view("pre-activation", pre, dact.rows, pre_width(kind, dact.cols), dact.dtype);
  check_view("pre-activation gradient", dpre, dact.rows, pre.cols, dact.dtype);
  for_row_parts(context.team, dact.rows, dact.cols, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(activation_backward_rows)(kind, dact, pre, dpre, begin, end);
  });
}

}  // namespace strata::kernels
#endif

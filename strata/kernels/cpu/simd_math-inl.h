// SPDX-License-Identifier: Apache-2.0
// exp, the logistic function, the normal distribution and sine/cosine on f32 vectors, for the per-target parts of the
// CPU kernels. Relative errors are below 3e-7 for exp and 1e-6 for the others (tests say how they are bounded).
// Polynomials are minimax fits of our own (iteratively reweighted least squares); sine and cosine are Taylor series.

#if defined(STRATA_KERNELS_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_SIMD_MATH_INL_H_
#undef STRATA_KERNELS_CPU_SIMD_MATH_INL_H_
#else
#define STRATA_KERNELS_CPU_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Horner's rule, coefficients from the highest power down.
template <class D, size_t kCount>
HWY_INLINE hn::Vec<D> polynomial(D d, hn::Vec<D> x, const float (&coefficients)[kCount]) {
  auto sum = hn::Set(d, coefficients[0]);
  for (size_t i = 1; i < kCount; ++i) sum = hn::MulAdd(sum, x, hn::Set(d, coefficients[i]));
  return sum;
}

// e^x; below -87.33 the smallest normal number, above 88.37 2^127.5.
template <class D>
HWY_INLINE hn::Vec<D> exponential(D d, hn::Vec<D> x) {
  constexpr float kSeries[] = {0.0013950594f, 0.00836895406f, 0.041666206f, 0.166665182f, 0.5f};
  const hn::Rebind<int32_t, D> integers;
  x = hn::Min(hn::Max(x, hn::Set(d, -87.33654f)), hn::Set(d, 88.37626f));
  const auto power = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504f)));
  const auto whole = hn::ConvertTo(d, power);
  // ln 2 in two parts; the product with the first is exact even without a fused multiply-add.
  auto r = hn::NegMulAdd(whole, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(whole, hn::Set(d, 1.42860677e-6f), r);
  const auto mantissa = hn::MulAdd(polynomial(d, r, kSeries), hn::Mul(r, r), r);
  const auto scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(power, hn::Set(integers, 127))));
  return hn::MulAdd(mantissa, scale, scale);
}

// 1 / (1 + e^-x)
template <class D>
HWY_INLINE hn::Vec<D> logistic(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exponential(d, hn::Neg(x))));
}

// The standard normal distribution: density e^(-x^2/2) without its constant, and the cumulative probability.
template <class D>
struct Normal {
  hn::Vec<D> unscaled_density;
  hn::Vec<D> cumulative;
};
template <class D>
HWY_INLINE Normal<D> normal_distribution(D d, hn::Vec<D> x) {
  // P(X > a) = e^(-a^2/2) * series((a - 4) / (a + 4)) for 0 <= a <= 14, relative error 2e-8 in exact arithmetic.
  constexpr float kSeries[] = {-6.6302724e-05f, -0.00016959857f, 0.000657714088f, 0.000503673858f, -0.0084976824f,
                               0.0308652595f,   -0.0717067868f,  0.124379218f,    -0.170397744f,   0.094410643f};
  const auto a = hn::Min(hn::Abs(x), hn::Set(d, 14.0f));
  const auto square = hn::Mul(a, a);
  const auto rest =
      hn::MulSub(a, a, square);  // what rounding the square lost: it would weigh a^2/2 times in the result
  auto density = exponential(d, hn::Mul(square, hn::Set(d, -0.5f)));
  density = hn::NegMulAdd(hn::Mul(density, hn::Set(d, 0.5f)), rest, density);
  const auto four = hn::Set(d, 4.0f);
  const auto tail = hn::Mul(density, polynomial(d, hn::Div(hn::Sub(a, four), hn::Add(a, four)), kSeries));
  const auto cumulative = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
  return {density, cumulative};
}

// Sine and cosine of an angle given as a fraction of a turn, in units of 2^-32 turns.
template <class D>
struct SineCosine {
  hn::Vec<D> sine;
  hn::Vec<D> cosine;
};
template <class D>
HWY_INLINE SineCosine<D> sine_cosine(D d, hn::Vec<hn::Rebind<uint32_t, D>> phase) {
  constexpr float kSine[] = {2.75573192e-6f, -1.98412698e-4f, 8.33333333e-3f, -1.66666667e-1f};
  constexpr float kCosine[] = {-2.75573192e-7f, 2.48015873e-5f, -1.38888889e-3f, 4.16666667e-2f, -0.5f};
  const hn::Rebind<uint32_t, D> words;
  const hn::Rebind<int32_t, D> integers;
  const auto one = hn::Set(words, 1), two = hn::Set(words, 2);
  const auto quarter = hn::ShiftRight<30>(hn::Add(phase, hn::Set(words, 1u << 29)));
  const auto within =
      hn::BitCast(integers, hn::Sub(phase, hn::ShiftLeft<30>(quarter)));         // an eighth of a turn each way
  const auto r = hn::Mul(hn::ConvertTo(d, within), hn::Set(d, 1.46291808e-9f));  // 2 pi / 2^32
  const auto square = hn::Mul(r, r);
  const auto sine = hn::MulAdd(hn::Mul(polynomial(d, square, kSine), square), r, r);
  const auto cosine = hn::MulAdd(polynomial(d, square, kCosine), square, hn::Set(d, 1.0f));
  const auto odd = hn::MaskFromVec(hn::BitCast(d, hn::Neg(hn::BitCast(integers, hn::And(quarter, one)))));
  const auto sine_sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(quarter, two)));
  const auto cosine_sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(hn::Add(quarter, one), two)));
  return {hn::Xor(hn::IfThenElse(odd, cosine, sine), sine_sign),
          hn::Xor(hn::IfThenElse(odd, sine, cosine), cosine_sign)};
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STRATA_KERNELS_CPU_SIMD_MATH_INL_H_

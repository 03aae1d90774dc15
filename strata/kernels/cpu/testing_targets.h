// SPDX-License-Identifier: Apache-2.0
// Runs a test body once per instruction set this CPU has, through the same dispatch as production, and once per team
// size where the result must not depend on it. Not for concurrent tests: the chosen instruction set is process-wide.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "strata/kernels/kernels.h"
#include "strata/kernels/testing_matrix.h"

namespace strata::kernels {

template <typename Body>
void for_each_target(Body&& body) {
  const auto all = static_cast<uint64_t>(hwy::SupportedTargets());
  for (uint64_t rest = all; rest != 0; rest &= rest - 1) {
    const auto target = static_cast<int64_t>(rest & (~rest + 1));
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::GetChosenTarget().Update(target);
    body();
  }
  hwy::GetChosenTarget().DeInit();
}

// Rows and columns at the edges of vectors, and one shape that is split over threads.
inline const std::vector<std::pair<int64_t, int64_t>> kTestShapes = {{1, 1},  {3, 7},    {2, 8},    {5, 33},
                                                                     {0, 16}, {2, 1023}, {24, 1025}};
inline constexpr DType kTestStorage[] = {DType::kF32, DType::kBF16};

// make(context) computes on a fresh copy and returns the results; equal for 1, 2 and 3 threads. Returns them.
template <typename Make>
auto on_any_team(Make&& make) {
  Team one(1), two(2), three(3);
  auto result = make(Context{one, {}});
  EXPECT_TRUE(make(Context{two, {}}) == result) << "2 threads";
  EXPECT_TRUE(make(Context{three, {}}) == result) << "3 threads";
  return result;
}

// The same values, as f32: what the reference writes its unrounded results to.
inline Matrix widened(const Matrix& from) {
  Matrix to(DType::kF32, from.rows(), from.cols(), 0);
  for (int64_t row = 0; row < from.rows(); ++row)
    for (int64_t col = 0; col < from.cols(); ++col) ref::write_element(to.view(), row, col, from.at(row, col));
  return to;
}

// What storing adds to an f32 bound: one rounding to bf16, or nothing.
inline double storage_bound(DType dtype, double value) {
  return dtype == DType::kBF16 ? unit_roundoff(dtype) * std::abs(value) : 0.0;
}

// d(sum of weights * outputs)/d(element) by central differences, against `gradient` (the same shape as `input`), for
// functions that are smooth on the scale of kStep. Outputs of magnitude a few are stored in f32: a rounding of 2^-22
// over the step is 2^-22 / 2^-5 = 8e-6 per output; the third derivative times kStep^2 / 6 is 2e-4 for slopes of order
// one.
inline constexpr double kStep = 0x1p-6;
inline void expect_gradient(const Matrix& input, const Matrix& gradient, const std::function<double()>& loss,
                            double bound) {
  for (int64_t row = 0; row < input.rows(); ++row)
    for (int64_t col = 0; col < input.cols(); ++col) {
      const double value = input.at(row, col);
      ref::write_element(input.view(), row, col, value + kStep);
      const double above = loss();
      ref::write_element(input.view(), row, col, value - kStep);
      const double below = loss();
      ref::write_element(input.view(), row, col, value);
      EXPECT_NEAR(gradient.at(row, col), (above - below) / (2 * kStep), bound) << row << ", " << col;
    }
}

inline double dot(const Matrix& a, const Matrix& b) {
  double sum = 0;
  for (int64_t row = 0; row < a.rows(); ++row)
    for (int64_t col = 0; col < a.cols(); ++col) sum += a.at(row, col) * b.at(row, col);
  return sum;
}

}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
// Matrices for the tests of the products: owned memory with room between the rows, filled from a seed, and the
// comparison with a reference within a bound per element. The room is checked to be untouched.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "strata/kernels/ref/element.h"
#include "strata/tensor/tensor.h"

namespace strata::kernels {

class Matrix {
 public:
  // Filled with normal numbers (rounded to the storage) from `seed`; 0 fills with a value no result has.
  Matrix(DType dtype, int64_t rows, int64_t cols, uint64_t seed, int64_t gap = 0)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        stride_(cols + gap),
        memory_((rows * stride_ + 1) * dtype_bytes(dtype)) {
    std::mt19937_64 generator(seed);
    std::normal_distribution<double> normal;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < stride_; ++col)
        ref::write_element(whole(), row, col, seed == 0 || col >= cols ? kUnset : normal(generator));
  }

  TensorView view() const { return {const_cast<std::byte*>(memory_.data()), dtype_, rows_, cols_, stride_}; }
  double at(int64_t row, int64_t col) const { return ref::read_element(view(), row, col); }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  // Absolute values, to sum the magnitudes that rounding errors are relative to.
  Matrix magnitudes() const {
    Matrix result = *this;
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t col = 0; col < cols_; ++col) ref::write_element(result.view(), row, col, std::abs(at(row, col)));
    return result;
  }

  bool gap_untouched() const {
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t col = cols_; col < stride_; ++col)
        if (ref::read_element(whole(), row, col) != kUnset) return false;
    return true;
  }

  bool operator==(const Matrix& other) const { return memory_ == other.memory_; }

 private:
  static constexpr double kUnset = 4096;  // exact in bf16

  TensorView whole() const { return {const_cast<std::byte*>(memory_.data()), dtype_, rows_, stride_, stride_}; }

  DType dtype_;
  int64_t rows_, cols_, stride_;
  std::vector<std::byte> memory_;
};

// bound(row, col): the largest permitted difference.
template <typename Bound>
void expect_close(const Matrix& actual, const Matrix& expected, Bound bound, const char* what = "") {
  for (int64_t row = 0; row < expected.rows(); ++row)
    for (int64_t col = 0; col < expected.cols(); ++col) {
      if (actual.at(row, col) == expected.at(row, col)) continue;  // also infinities
      const double difference = std::abs(actual.at(row, col) - expected.at(row, col));
      ASSERT_TRUE(difference <= bound(row, col))
          << what << " (" << row << ", " << col << "): " << actual.at(row, col) << " instead of "
          << expected.at(row, col) << ", permitted " << bound(row, col);
    }
  EXPECT_TRUE(actual.gap_untouched()) << what;
}

// Half the distance of neighbouring numbers, relative: what one rounding to the storage can change.
inline double unit_roundoff(DType dtype) { return dtype == DType::kBF16 ? 0x1p-8 : 0x1p-24; }

// Every gradient is the central difference of the loss over twice `step` of its element, within `permitted`.
template <typename Loss>
void expect_slopes(const Matrix& operand, const Matrix& gradient, double step, double permitted, const Loss& loss) {
  const auto loss_at = [&](int64_t row, int64_t col, double value) {
    ref::write_element(operand.view(), row, col, value);
    return loss();
  };
  for (int64_t row = 0; row < operand.rows(); ++row)
    for (int64_t col = 0; col < operand.cols(); ++col) {
      const double value = operand.at(row, col);
      const double above = loss_at(row, col, value + step), below = loss_at(row, col, value - step);
      ref::write_element(operand.view(), row, col, value);
      EXPECT_NEAR(gradient.at(row, col), (above - below) / (2 * step), permitted) << row << ", " << col;
    }
}

}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/cpu/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace strata::kernels {
namespace {

constexpr int64_t kLengths[] = {0, 1, 3, 4, 15, 16, 17, 31, 33, 130};
constexpr float kUnset = 77.0f;

// One more element than the row, to see that it stays.
std::vector<float> random_row(int64_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(count + 1, kUnset);
  for (int64_t i = 0; i < count; ++i) row[i] = normal(generator);
  return row;
}

TEST(Rows, NarrowsLikeToBf16AndWidensBack) {
  const float special[] = {0.0f,
                           -0.0f,
                           1.0f + 0x1p-8f,
                           1.0f + 0x3p-8f,
                           std::numeric_limits<float>::max(),
                           1e-40f,
                           std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
  for (const int64_t count : kLengths) {
    std::vector<float> row = random_row(count, 1), back(count + 1, kUnset);
    for (int64_t i = 0; i < std::min<int64_t>(count, std::size(special)); ++i) row[i] = special[i];
    std::vector<BF16> narrow(count + 1, to_bf16(kUnset));
    narrow_row(row.data(), narrow.data(), count);
    for (int64_t i = 0; i <= count; ++i) EXPECT_EQ(narrow[i].bits, to_bf16(row[i]).bits) << row[i];
    widen_row(narrow.data(), back.data(), count);
    for (int64_t i = 0; i <= count; ++i) EXPECT_TRUE(back[i] == to_float(narrow[i]) || std::isnan(row[i]));
    narrow_row(row.data(), reinterpret_cast<BF16*>(row.data()), count);  // in place
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(reinterpret_cast<BF16*>(row.data())[i].bits, narrow[i].bits);
  }
}

TEST(Rows, AddsScalesAndReduces) {
  for (const int64_t count : kLengths) {
    const std::vector<float> a = random_row(count, 1), b = random_row(count, 2);
    std::vector<BF16> narrow(count);
    narrow_row(a.data(), narrow.data(), count);
    std::vector<float> sum = b, narrow_sum = b, product = b, scaled = a;
    add_row(a.data(), sum.data(), count);
    add_row(narrow.data(), narrow_sum.data(), count);
    multiply_row(a.data(), product.data(), count);
    scale_row(scaled.data(), count, 3.0f);
    double dot = 0, magnitude = 0;
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(sum[i], a[i] + b[i]);
      EXPECT_EQ(narrow_sum[i], to_float(narrow[i]) + b[i]);
      EXPECT_EQ(product[i], a[i] * b[i]);
      EXPECT_EQ(scaled[i], 3.0f * a[i]);
      dot += static_cast<double>(a[i]) * b[i];
      magnitude += std::abs(static_cast<double>(a[i]) * b[i]);
      largest = std::max(largest, a[i]);
    }
    EXPECT_EQ(sum[count], kUnset);
    EXPECT_EQ(product[count], kUnset);
    EXPECT_EQ(scaled[count], kUnset);
    EXPECT_NEAR(dot_row(a.data(), b.data(), count), dot, static_cast<double>(count) * 0x1p-24 * magnitude);
    EXPECT_EQ(max_row(a.data(), count), largest);
  }
}

TEST(Rows, Exponentials) {
  for (const int64_t count : kLengths) {
    const std::vector<float> row = random_row(count, 1);
    std::vector<float> exps = row, scaled = row;
    const float sum = exp_row(exps.data(), count, 0.5f);
    scaled_exp_row(scaled.data(), count, 0.5f, -2.0f);
    EXPECT_EQ(sum, sum_exp_row(row.data(), count, 0.5f));
    double expected_sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double expected = std::exp(static_cast<double>(row[i]) - 0.5);
      expected_sum += expected;
      // One rounding of the difference, |x| < 8 before exp, and 3e-7 of the exponential (simd_math-inl.h).
      EXPECT_NEAR(exps[i], expected, (8 * 0x1p-24 + 3e-7) * expected);
      EXPECT_EQ(scaled[i], -2.0f * exps[i]);
    }
    EXPECT_EQ(exps[count], kUnset);
    EXPECT_NEAR(sum, expected_sum, (static_cast<double>(count) + 14) * 0x1p-24 * expected_sum);
  }
}

TEST(Rows, ExponentialsOfExtremes) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> row = {-infinity, -1e30f, -200.0f, 0.0f};
  EXPECT_EQ(exp_row(row.data(), 4, 0.0f), 1.0f);
  EXPECT_LE(row[0], 2 * std::numeric_limits<float>::min());
  row = {0.0f, std::numeric_limits<float>::quiet_NaN(), 0.0f};
  EXPECT_TRUE(std::isnan(exp_row(row.data(), 3, 0.0f)));
  EXPECT_TRUE(std::isnan(row[1]));
}

TEST(Rows, SoftmaxGradient) {
  for (const int64_t count : kLengths) {
    const std::vector<float> p = random_row(count, 1), dp = random_row(count, 2);
    std::vector<float> dscores = dp;
    softmax_gradient_row(p.data(), dscores.data(), count, 0.25f);
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(dscores[i], p[i] * (dp[i] - 0.25f));
    EXPECT_EQ(dscores[count], kUnset);
  }
}

TEST(Rows, Transposes) {
  for (const int64_t rows : {1, 3, 4, 9, 32})
    for (const int64_t cols : {1, 4, 7, 64}) {
      const std::vector<float> from = random_row(rows * (cols + 2), 1);
      std::vector<float> to(cols * (rows + 1), kUnset);
      transpose_block(from.data(), cols + 2, rows, cols, to.data(), rows + 1);
      for (int64_t col = 0; col < cols; ++col) {
        for (int64_t row = 0; row < rows; ++row) EXPECT_EQ(to[col * (rows + 1) + row], from[row * (cols + 2) + col]);
        EXPECT_EQ(to[col * (rows + 1) + rows], kUnset);
      }
    }
}

}  // namespace
}  // namespace strata::kernels

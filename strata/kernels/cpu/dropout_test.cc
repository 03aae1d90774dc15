// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "strata/base/random.h"
#include "strata/kernels/cpu/testing_targets.h"
#include "strata/kernels/ref/elementwise.h"

namespace strata::kernels {
namespace {

constexpr uint64_t kKey = 0x123456789abcdef0;

// Far apart, so that all 64 bits of the counter count.
std::vector<int64_t> token_indices(int64_t count) {
  std::vector<int64_t> tokens(count);
  for (int64_t i = 0; i < count; ++i) tokens[i] = i * 0x100000001 + 5;
  return tokens;
}

template <typename Body>
void for_each_case(Body body) {
  for (const float rate : {0.0f, 0.1f, 0.75f})
    for (const DType dtype : kTestStorage)
      for (const auto& [rows, cols] : kTestShapes) {
        SCOPED_TRACE(fmt::format("rate {} {} {} x {}", rate, dtype_name(dtype), rows, cols));
        const std::vector<int64_t> tokens = token_indices(rows);
        body(Dropout{rate, kKey, tokens}, Matrix(dtype, rows, cols, 1, 3));
      }
}

TEST(Dropout, EqualsTheReferenceBitForBit) {
  Team team(1);
  for_each_target([&] {
    for_each_case([&](const Dropout& rule, const Matrix& x) {
      const DType dtype = x.view().dtype;
      const Matrix y = on_any_team([&](const Context& context) {
        const Matrix y(dtype, x.rows(), x.cols(), 0, 3);
        dropout(context, rule, x.view(), y.view());
        return y;
      });
      const Matrix expected(dtype, x.rows(), x.cols(), 0, 3), in_place = x;
      ref::dropout({team, {}}, rule, x.view(), expected.view());
      expect_close(y, expected, [](int64_t, int64_t) { return 0.0; });
      dropout({team, {}}, rule, in_place.view(), in_place.view());
      expect_close(
          in_place, expected, [](int64_t, int64_t) { return 0.0; }, "in place");
    });
  });
}

TEST(Dropout, AddResidualIsTheReference) {
  Team team(1);
  for_each_target([&] {
    for_each_case([&](const Dropout& rule, const Matrix& x) {
      const DType dtype = x.view().dtype;
      const Matrix residual(dtype, x.rows(), x.cols(), 2, 1), expected(DType::kF32, x.rows(), x.cols(), 0);
      const Matrix y = on_any_team([&](const Context& context) {
        const Matrix y(dtype, x.rows(), x.cols(), 0, 3);
        add_residual(context, rule, x.view(), residual.view(), y.view());
        return y;
      });
      ref::add_residual({team, {}}, rule, x.view(), residual.view(), expected.view());
      // The product may round before the sum does: a unit of roundoff of each.
      const auto bound = [&](int64_t row, int64_t col) {
        return 0x1p-24 * (4 * std::abs(x.at(row, col)) + 2 * std::abs(expected.at(row, col))) +
               storage_bound(dtype, expected.at(row, col));
      };
      expect_close(y, expected, bound);
      const Matrix over_x = x, over_residual = residual;
      add_residual({team, {}}, rule, over_x.view(), residual.view(), over_x.view());
      add_residual({team, {}}, rule, x.view(), over_residual.view(), over_residual.view());
      expect_close(over_x, expected, bound, "over x");
      expect_close(over_residual, expected, bound, "over the residual");
    });
  });
}

TEST(Dropout, FollowsTheTokenAndTheColumn) {
  Team team(1);
  constexpr int64_t kRows = 4, kCols = 600;
  const Matrix ones(DType::kF32, kRows, kCols, 1), y(DType::kF32, kRows, kCols, 0),
      turned(DType::kF32, kRows, kCols, 0);
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t col = 0; col < kCols; ++col) ref::write_element(ones.view(), row, col, 1.0);
  const std::vector<int64_t> tokens = {7, 8, 1'000'000'000'000, 9}, reversed(tokens.rbegin(), tokens.rend());
  dropout({team, {}}, {0.25f, kKey, tokens}, ones.view(), y.view());
  dropout({team, {}}, {0.25f, kKey, reversed}, ones.view(), turned.view());
  int kept = 0;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t col = 0; col < kCols; ++col) {
      const uint32_t word = philox(kKey, static_cast<uint64_t>(tokens[row]), static_cast<uint64_t>(col) / 4)[col % 4];
      EXPECT_EQ(y.at(row, col), uniform_from(word) >= 0.25f ? 1.0f / 0.75f : 0.0f) << row << ", " << col;
      EXPECT_EQ(turned.at(kRows - 1 - row, col), y.at(row, col));
      kept += y.at(row, col) != 0;
    }
  EXPECT_NEAR(kept, 1800, 5 * std::sqrt(2400 * 0.25 * 0.75));  // five standard deviations
}

TEST(Dropout, BackwardIsForwardOnGradients) {
  // Linear in x with the same mask: sum(g * dropout(x)) == sum(dropout(g) * x).
  Team team(1);
  const std::vector<int64_t> tokens = token_indices(5);
  const Dropout rule = {0.3f, kKey, tokens};
  const Matrix x(DType::kF32, 5, 33, 1), g(DType::kF32, 5, 33, 2), y(DType::kF32, 5, 33, 0), dx(DType::kF32, 5, 33, 0);
  dropout({team, {}}, rule, x.view(), y.view());
  dropout({team, {}}, rule, g.view(), dx.view());
  EXPECT_NEAR(dot(g, y), dot(dx, x), 165 * 8 * 0x1p-24);  // 165 products below 8, one rounding each
}

TEST(DropoutDeathTest, RefusesWhatCannotBe) {
  Team team(1);
  const Matrix x(DType::kF32, 2, 4, 1);
  const std::vector<int64_t> tokens = token_indices(2);
  EXPECT_DEATH(dropout({team, {}}, {1.0f, kKey, tokens}, x.view(), x.view()), "dropout rate 1");
  EXPECT_DEATH(dropout({team, {}}, {0.5f, kKey, {}}, x.view(), x.view()), "0 token indices for 2 rows");
}

}  // namespace
}  // namespace strata::kernels

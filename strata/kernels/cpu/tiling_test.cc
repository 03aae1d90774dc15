// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/cpu/tiling.h"

#include <gtest/gtest.h>

#include <vector>

namespace strata::kernels {
namespace {

TEST(Tiling, CoversEveryElementOnceWithinTheLimits) {
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {2048, 1152, 384}, {1, 50257, 768}, {777, 1, 10}, {1531, 3001, 7}}) {
    for (const Trans trans_a : {Trans::kNo, Trans::kYes})
      for (const Trans trans_b : {Trans::kNo, Trans::kYes}) {
        const Tiling tiling = choose_tiling(m, n, k, trans_a, trans_b);
        std::vector<int> covered(m * n);
        for (int64_t index = 0; index < tiling.num_tiles(); ++index) {
          const Tile tile = tiling.tile(index);
          EXPECT_LE(tile.rows, kMaxTileRows);
          EXPECT_LE(tile.cols, kMaxTileCols);
          for (int64_t row = tile.row; row < tile.row + tile.rows; ++row)
            for (int64_t col = tile.col; col < tile.col + tile.cols; ++col) ++covered.at(row * n + col);
        }
        EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), m * n) << m << " x " << n;
      }
  }
}

TEST(Tiling, NothingToCover) {
  EXPECT_EQ(choose_tiling(0, 5, 5, Trans::kNo, Trans::kNo).num_tiles(), 0);
  EXPECT_EQ(choose_tiling(5, 0, 5, Trans::kNo, Trans::kNo).num_tiles(), 0);
}

TEST(Tiling, SmallProductsStayWhole) { EXPECT_EQ(choose_tiling(64, 64, 64, Trans::kNo, Trans::kNo).num_tiles(), 1); }

TEST(Tiling, LargeProductsFeedATeam) {
  EXPECT_GE(choose_tiling(2048, 1152, 384, Trans::kNo, Trans::kYes).num_tiles(), 16);
  EXPECT_GE(choose_tiling(1, 50257, 768, Trans::kNo, Trans::kYes).num_tiles(), 16);
}

}  // namespace
}  // namespace strata::kernels

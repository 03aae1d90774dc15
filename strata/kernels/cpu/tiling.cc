// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/cpu/tiling.h"

#include <algorithm>

namespace strata::kernels {
namespace {

constexpr int64_t kWantedTiles = 16;                // enough for a small team
constexpr int64_t kSmallestTileFlops = 1'000'000;   // about 10 us on one core: several times the cost of waking a team
constexpr int64_t kLargestTileFlops = 200'000'000;  // about 2 ms on one core: many tiles for a large team
constexpr int64_t kSmallestSide = 128;              // thinner tiles lose more in packing than they gain in balance
constexpr int64_t kRowGrain = 8, kColGrain = 48;  // the register block of single-precision products on 512-bit vectors

int64_t round_up(int64_t value, int64_t grain) { return (value + grain - 1) / grain * grain; }

// Side of one of `parts` equal parts.
int64_t part(int64_t side, int64_t parts, int64_t grain) {
  return std::min(side, round_up((side + parts - 1) / parts, grain));
}

}  // namespace

Tile Tiling::tile(int64_t index) const {
  const int64_t row = index % row_tiles() * rows, col = index / row_tiles() * cols;
  return {row, col, std::min(rows, m - row), std::min(cols, n - col)};
}

Tiling choose_tiling(int64_t m, int64_t n, int64_t k, Trans trans_a, Trans trans_b) {
  Tiling tiling{m, n, m, n};
  if (m == 0 || n == 0) return tiling;
  // Halving the rows packs b once more, halving the columns a; a transposed operand costs about twice as much to pack.
  const int64_t row_weight = trans_b == Trans::kYes ? 1 : 2, col_weight = trans_a == Trans::kYes ? 1 : 2;
  for (int64_t row_parts = 1, col_parts = 1;;) {
    const bool too_large = tiling.rows > kMaxTileRows || tiling.cols > kMaxTileCols;
    const int64_t flops = 2 * tiling.rows * tiling.cols * k;
    const bool worth =
        flops > kLargestTileFlops || (tiling.num_tiles() < kWantedTiles && flops >= 2 * kSmallestTileFlops);
    const bool rows_split = tiling.rows >= 2 * kSmallestSide, cols_split = tiling.cols >= 2 * kSmallestSide;
    if (!too_large && !(worth && (rows_split || cols_split))) return tiling;
    const bool split_rows =
        tiling.rows > kMaxTileRows || !cols_split ||
        (rows_split && tiling.cols <= kMaxTileCols && tiling.rows * row_weight >= tiling.cols * col_weight);
    if (split_rows)
      tiling.rows = part(m, row_parts *= 2, kRowGrain);
    else
      tiling.cols = part(n, col_parts *= 2, kColGrain);
  }
}

}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
// How an output (m, n) of a product is cut into tiles for the members of a team. Pure. The cut depends on the sizes
// only, never on the number of threads, so a product gives the same bits on any team.
#pragma once

#include <cstdint>

#include "strata/kernels/kernels.h"

namespace strata::kernels {

constexpr int64_t kMaxTileRows = 512;
constexpr int64_t kMaxTileCols = 1536;

struct Tile {
  int64_t row, col, rows, cols;
};

struct Tiling {
  int64_t m = 0, n = 0;
  int64_t rows = 0, cols = 0;  // of a tile; those at the lower and right border may be smaller

  int64_t row_tiles() const { return rows == 0 ? 0 : (m + rows - 1) / rows; }
  int64_t num_tiles() const { return cols == 0 ? 0 : row_tiles() * ((n + cols - 1) / cols); }
  // Column-major order: members working at the same time share the columns of b.
  Tile tile(int64_t index) const;
};

Tiling choose_tiling(int64_t m, int64_t n, int64_t k, Trans trans_a, Trans trans_b);

}  // namespace strata::kernels

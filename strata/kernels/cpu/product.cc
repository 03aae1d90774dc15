// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/cpu/product.h"

#include <dnnl.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "strata/kernels/cpu/bf16_product.h"
#include "strata/kernels/cpu/rows.h"
#include "strata/kernels/cpu/scratch.h"
#include "strata/kernels/cpu/sgemm.h"
#include "strata/kernels/cpu/tiling.h"

namespace strata::kernels {
namespace {

constexpr int64_t kMaxDepth = 1024;  // block of k for bf16: bounds the scratch of a tile

// One member's scratch for bf16: blocks of a and b as f32 (a native product packs into the same bytes, which are more
// than twice what it copies) and the f32 tile of a bf16 c.
struct MemberScratch {
  int64_t operands = 0, tile = 0;
  int64_t bytes() const { return round_to_line(operands) + round_to_line(tile) + kScratchLine; }
};

// Sizes are rounded up to what native packing pads to, so that a smaller product never needs more.
MemberScratch member_scratch(int64_t m, int64_t n, int64_t k) {
  const auto padded = [](int64_t size, int64_t most) { return (std::min(size, most) + 63) / 64 * 64; };
  const int64_t rows = padded(m, kMaxTileRows), cols = padded(n, kMaxTileCols), depth = padded(k, kMaxDepth);
  return {round_to_line(4 * rows * depth) + round_to_line(4 * depth * cols) + kScratchLine, 4 * rows * cols};
}

int64_t depth_of(const GemmArgs& args) { return args.trans_a == Trans::kYes ? args.a.rows : args.a.cols; }

void check_shapes(const GemmArgs& args, const TensorView& bias) {
  const bool trans_a = args.trans_a == Trans::kYes, trans_b = args.trans_b == Trans::kYes;
  const int64_t m = trans_a ? args.a.cols : args.a.rows, k = depth_of(args);
  const int64_t b_rows = trans_b ? args.b.cols : args.b.rows, n = trans_b ? args.b.rows : args.b.cols;
  STRATA_CHECK(m == args.c.rows && n == args.c.cols && k == b_rows, "product ({}, {}) * ({}, {}) into ({}, {})", m, k,
               b_rows, n, args.c.rows, args.c.cols);
  STRATA_CHECK(args.a.dtype == args.b.dtype && (args.a.dtype == DType::kF32 || args.a.dtype == DType::kBF16),
               "product of {} and {}", dtype_name(args.a.dtype), dtype_name(args.b.dtype));
  STRATA_CHECK(args.c.dtype == DType::kF32 || (args.c.dtype == args.a.dtype && args.write == Write::kSet),
               "product of {} {} {}", dtype_name(args.a.dtype), args.write == Write::kSet ? "into" : "added into",
               dtype_name(args.c.dtype));
  STRATA_CHECK(bias.empty() || (bias.rows == 1 && bias.cols == n && args.write == Write::kSet),
               "bias ({}, {}) for {} columns", bias.rows, bias.cols, n);
}

// The part of a stored operand that covers rows [row, row + rows) of what is meant and [col, col + cols) of its
// columns.
TensorView block_of(const TensorView& stored, Trans trans, const Tile& block) {
  return trans == Trans::kYes ? stored.slice_rows(block.col, block.cols).slice_cols(block.row, block.rows)
                              : stored.slice_rows(block.row, block.rows).slice_cols(block.col, block.cols);
}

Operand f32_operand(const TensorView& stored, Trans trans) { return {stored.row<float>(0), stored.row_stride, trans}; }

Operand converted(const TensorView& stored, Trans trans, float* memory) {
  for (int64_t row = 0; row < stored.rows; ++row)
    widen_row(stored.row<BF16>(row), memory + row * stored.cols, stored.cols);
  return {memory, stored.cols, trans};
}

// Computes tiles on one member.
class TileWorker {
 public:
  TileWorker(const GemmArgs& args, const TensorView& bias, Bf16Path path, std::span<std::byte> scratch)
      : args_(args), bias_(bias) {
    if (args.a.dtype != DType::kBF16) return;
    const MemberScratch sizes = member_scratch(args.c.rows, args.c.cols, depth_of(args));
    Scratch rest(scratch);
    operands_ = rest.take_bytes(sizes.operands);
    tile_ = rest.take<float>(sizes.tile / 4);
    if (path == Bf16Path::kNative) native_.emplace(operands_);
  }

  void compute(const Tile& tile) {
    const TensorView c = block_of(args_.c, Trans::kNo, tile);
    const TensorView sum = c.dtype == DType::kF32 ? c : TensorView(tile_, DType::kF32, tile.rows, tile.cols);
    const int64_t k = depth_of(args_);
    const bool f32 = args_.a.dtype == DType::kF32;
    const bool overwrite = f32 && k > 0 && bias_.empty() && args_.write == Write::kSet;
    if (args_.write == Write::kSet && !overwrite) start(tile, sum);
    for (int64_t begin = 0; begin < k; begin += f32 ? k : kMaxDepth) {
      const int64_t depth = f32 ? k : std::min(kMaxDepth, k - begin);
      const TensorView a = block_of(args_.a, args_.trans_a, {tile.row, begin, tile.rows, depth});
      const TensorView b = block_of(args_.b, args_.trans_b, {begin, tile.col, depth, tile.cols});
      multiply_block({tile.rows, tile.cols, depth}, a, b, overwrite ? 0.0f : 1.0f, {sum.row<float>(0), sum.row_stride});
    }
    if (c.dtype == DType::kBF16)
      for (int64_t row = 0; row < c.rows; ++row) narrow_row(sum.row<float>(row), c.row<BF16>(row), c.cols);
  }

 private:
  // Zeroes, or the bias, to which the product is added.
  void start(const Tile& tile, const TensorView& sum) {
    for (int64_t row = 0; row < sum.rows; ++row) {
      float* const to = sum.row<float>(row);
      if (bias_.empty())
        std::fill_n(to, sum.cols, 0.0f);
      else if (bias_.dtype == DType::kBF16)
        widen_row(bias_.row<BF16>(0) + tile.col, to, sum.cols);
      else
        std::copy_n(bias_.row<float>(0) + tile.col, sum.cols, to);
    }
  }

  void multiply_block(const ProductSize& size, const TensorView& a, const TensorView& b, float beta,
                      const Target& target) {
    if (a.dtype == DType::kF32) {
      sgemm(size, 1.0f, f32_operand(a, args_.trans_a), f32_operand(b, args_.trans_b), beta, target);
    } else if (native_) {
      native_->add(size, {a.row<BF16>(0), a.row_stride, args_.trans_a}, {b.row<BF16>(0), b.row_stride, args_.trans_b},
                   target);
    } else {
      Scratch rest(operands_);
      const Operand left = converted(a, args_.trans_a, rest.take<float>(size.m * size.k));
      const Operand right = converted(b, args_.trans_b, rest.take<float>(size.k * size.n));
      sgemm(size, 1.0f, left, right, beta, target);
    }
  }

  const GemmArgs& args_;
  const TensorView& bias_;
  std::span<std::byte> operands_;
  float* tile_ = nullptr;
  std::optional<Bf16Product> native_;
};

}  // namespace

Bf16Path preferred_bf16_path() {
  return dnnl_get_effective_cpu_isa() >= dnnl_cpu_isa_avx512_core_bf16 ? Bf16Path::kNative : Bf16Path::kConvert;
}

void multiply(const Context& context, const GemmArgs& args, const TensorView& bias, Bf16Path path) {
  check_shapes(args, bias);
  const int64_t k = depth_of(args);
  const Tiling tiling = choose_tiling(args.c.rows, args.c.cols, k, args.trans_a, args.trans_b);
  if (tiling.num_tiles() == 0) return;
  const int64_t share = args.a.dtype == DType::kBF16 ? member_scratch(args.c.rows, args.c.cols, k).bytes() : 0;
  const int64_t needed = share * context.team.num_threads();
  STRATA_CHECK(needed <= static_cast<int64_t>(context.scratch.size()), "a product needs {} scratch bytes, {} are given",
               needed, context.scratch.size());
  std::atomic<int64_t> next{0};
  context.team.run([&](int member, int) {
    int64_t index = next.fetch_add(1);
    if (index >= tiling.num_tiles()) return;
    TileWorker worker(args, bias, path, context.scratch.subspan(member * share, share));
    for (; index < tiling.num_tiles(); index = next.fetch_add(1)) worker.compute(tiling.tile(index));
  });
}

int64_t gemm_scratch_bytes(DType dtype, int64_t m, int64_t n, int64_t k, int num_threads) {
  return dtype == DType::kBF16 ? num_threads * member_scratch(m, n, k).bytes() : 0;
}

}  // namespace strata::kernels

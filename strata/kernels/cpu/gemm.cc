// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "strata/kernels/cpu/product.h"
#include "strata/kernels/cpu/rows.h"

namespace strata::kernels {
namespace {

constexpr int64_t kColumnBlock = 256;  // partial sums of a block stay in the first-level cache
constexpr int64_t kRowBlock = 128;     // rows added into one partial sum: keeps the rounding error of long sums small

// Sums of the columns [begin, begin + count) of `from` into `sums`, in an order that depends on the rows only.
void sum_columns(const TensorView& from, int64_t begin, int64_t count, float* sums) {
  for (int64_t block = 0; block < from.rows; block += kRowBlock) {
    std::array<float, kColumnBlock> partial{};
    for (int64_t row = block; row < std::min(from.rows, block + kRowBlock); ++row)
      if (from.dtype == DType::kBF16)
        add_row(from.row<BF16>(row) + begin, partial.data(), count);
      else
        add_row(from.row<float>(row) + begin, partial.data(), count);
    add_row(partial.data(), sums, count);
  }
}

void write_column_sums(const Context& context, const TensorView& from, const TensorView& to, Write write) {
  STRATA_CHECK(to.rows == 1 && to.cols == from.cols, "column sums of ({}, {}) into ({}, {})", from.rows, from.cols,
               to.rows, to.cols);
  context.team.parallel_for(from.cols, kColumnBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block += kColumnBlock) {
      const int64_t count = std::min(end - block, kColumnBlock);
      std::array<float, kColumnBlock> sums{};
      sum_columns(from, block, count, sums.data());
      float* const target = to.row<float>(0) + block;
      if (write == Write::kSet) std::fill_n(target, count, 0.0f);
      add_row(sums.data(), target, count);
    }
  });
}

}  // namespace

void gemm(const Context& context, const GemmArgs& args) { multiply(context, args, {}, preferred_bf16_path()); }

void linear_forward(const Context& context, const TensorView& x, const TensorView& weight, const TensorView& bias,
                    const TensorView& y) {
  multiply(context, {.a = x, .b = weight, .c = y, .trans_b = Trans::kYes}, bias, preferred_bf16_path());
}

void linear_backward_input(const Context& context, const TensorView& dy, const TensorView& weight,
                           const TensorView& dx) {
  gemm(context, {.a = dy, .b = weight, .c = dx});
}

void linear_backward_weight(const Context& context, const TensorView& dy, const TensorView& x,
                            const TensorView& dweight, const TensorView& dbias, Write write) {
  if (!dweight.empty()) gemm(context, {.a = dy, .b = x, .c = dweight, .trans_a = Trans::kYes, .write = write});
  if (!dbias.empty()) write_column_sums(context, dy, dbias, write);
}

}  // namespace strata::kernels

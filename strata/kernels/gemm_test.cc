// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "strata/kernels/cpu/product.h"
#include "strata/kernels/ref/products.h"
#include "strata/kernels/testing_matrix.h"

namespace strata::kernels {
namespace {

struct Case {
  int64_t m, n, k;
  Trans trans_a = Trans::kNo, trans_b = Trans::kNo;
  Write write = Write::kSet;
  DType in = DType::kF32, out = DType::kF32;
  bool bias = false;
};

std::string describe(const Case& c) {
  return fmt::format("{} x {} x {} trans {} {} {} {} -> {}{}", c.m, c.n, c.k, c.trans_a == Trans::kYes,
                     c.trans_b == Trans::kYes, c.write == Write::kSet ? "set" : "add", dtype_name(c.in),
                     dtype_name(c.out), c.bias ? " bias" : "");
}

Matrix operand(const Case& c, Trans trans, int64_t rows, int64_t cols, uint64_t seed) {
  return trans == Trans::kYes ? Matrix(c.in, cols, rows, seed, 5) : Matrix(c.in, rows, cols, seed, 3);
}

// A product with operands that are column slices of wider matrices.
struct Problem {
  explicit Problem(const Case& c)
      : c(c), a(operand(c, c.trans_a, c.m, c.k, 1)), b(operand(c, c.trans_b, c.k, c.n, 2)), bias(c.in, 1, c.n, 3) {}

  Matrix run(int threads, Bf16Path path) const {
    Matrix result(c.out, c.m, c.n, c.write == Write::kAdd ? 4 : 0, 7);
    Team team(threads);
    std::vector<std::byte> scratch(gemm_scratch_bytes(c.in, c.m, c.n, c.k, threads));
    multiply({team, scratch}, {a.view(), b.view(), result.view(), c.trans_a, c.trans_b, c.write}, bias_view(), path);
    return result;
  }

  TensorView bias_view() const { return c.bias ? bias.view() : TensorView(); }

  static Matrix reference(const Case& c, const Matrix& a, const Matrix& b, Matrix result) {
    Team team(1);
    ref::gemm({team, {}}, {a.view(), b.view(), result.view(), c.trans_a, c.trans_b, c.write});
    return result;
  }

  void check() const {
    SCOPED_TRACE(describe(c));
    const Matrix start(DType::kF32, c.m, c.n, c.write == Write::kAdd ? 4 : 0, 7);
    Matrix expected = reference(c, a, b, start);
    Matrix magnitude = reference(c, a.magnitudes(), b.magnitudes(), start.magnitudes());
    for (int64_t row = 0; c.bias && row < c.m; ++row)
      for (int64_t col = 0; col < c.n; ++col) {
        ref::write_element(expected.view(), row, col, expected.at(row, col) + bias.at(0, col));
        ref::write_element(magnitude.view(), row, col, magnitude.at(row, col) + std::abs(bias.at(0, col)));
      }
    // Any order of k + 1 additions in f32 is off by at most (k + 1) u times the sum of magnitudes (u: unit roundoff);
    // products of bf16 are exact in f32, those of f32 add one u, the reference's own store another. Then one rounding
    // to the storage of c.
    const auto bound = [&](int64_t row, int64_t col) {
      const double sum = (static_cast<double>(c.k) + 3) * 0x1p-24 * magnitude.at(row, col);
      return sum + unit_roundoff(c.out) * (std::abs(expected.at(row, col)) + sum);
    };
    for (const Bf16Path path : paths()) {
      const Matrix one = run(1, path);
      expect_close(one, expected, bound);
      EXPECT_EQ(run(2, path), one);
      EXPECT_EQ(run(3, path), one);
    }
  }

  // Both on a CPU that multiplies bf16, else the one it has.
  std::vector<Bf16Path> paths() const {
    if (c.in == DType::kF32 || preferred_bf16_path() == Bf16Path::kConvert) return {Bf16Path::kConvert};
    return {Bf16Path::kConvert, Bf16Path::kNative};
  }

  Case c;
  Matrix a, b, bias;
};

struct Size {
  int64_t m, n, k;
};
// One tile, ragged tiles in both directions, several blocks of k, and single rows and columns.
const Size kSizes[] = {{1, 1, 1},    {7, 33, 65},    {129, 65, 33}, {1, 700, 129}, {300, 1, 65},
                       {9, 7, 2500}, {520, 300, 20}, {65, 129, 0},  {257, 401, 65}};

void check_all(const std::vector<std::pair<DType, DType>>& dtypes) {
  for (const Size& size : kSizes)
    for (const auto& [in, out] : dtypes)
      for (const Trans trans_a : {Trans::kNo, Trans::kYes})
        for (const Trans trans_b : {Trans::kNo, Trans::kYes}) {
          Case c{size.m, size.n, size.k, trans_a, trans_b, Write::kSet, in, out};
          Problem(c).check();
          if (out == DType::kBF16) continue;
          c.write = Write::kAdd;
          Problem(c).check();
        }
}

TEST(Gemm, F32EqualsReferenceForAnyTeam) { check_all({{DType::kF32, DType::kF32}}); }

TEST(Gemm, Bf16EqualsReferenceForAnyTeamAndPath) {
  check_all({{DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16}});
}

TEST(Gemm, AddsTheBias) {
  for (const auto& [in, out] :
       {std::pair{DType::kF32, DType::kF32}, {DType::kBF16, DType::kBF16}, {DType::kBF16, DType::kF32}})
    for (const Size& size : kSizes)
      Problem({size.m, size.n, size.k, Trans::kNo, Trans::kYes, Write::kSet, in, out, true}).check();
}

TEST(Gemm, ScratchOfALargerProductIsEnough) {
  EXPECT_EQ(gemm_scratch_bytes(DType::kF32, 100, 100, 100, 4), 0);
  EXPECT_GE(gemm_scratch_bytes(DType::kBF16, 1000, 3000, 2000, 2), gemm_scratch_bytes(DType::kBF16, 999, 2000, 100, 2));
  EXPECT_EQ(gemm_scratch_bytes(DType::kBF16, 10, 20, 30, 4), 4 * gemm_scratch_bytes(DType::kBF16, 10, 20, 30, 1));
}

TEST(Gemm, EmptyProductsAreLegal) {
  Team team(2);
  const Matrix empty(DType::kF32, 0, 5, 1), square(DType::kF32, 5, 5, 1);
  Matrix result(DType::kF32, 0, 5, 0), sum(DType::kF32, 5, 5, 0);
  gemm({team, {}}, {empty.view(), square.view(), result.view()});
  gemm({team, {}}, {empty.view(), empty.view(), sum.view(), Trans::kYes});
  for (int64_t i = 0; i < 25; ++i) EXPECT_EQ(sum.at(i / 5, i % 5), 0.0);
}

TEST(GemmDeathTest, MisuseIsABug) {
  Team team(1);
  const Context context{team, {}};
  const Matrix a(DType::kF32, 4, 3, 1), b(DType::kF32, 4, 3, 1), half(DType::kBF16, 3, 3, 1), c(DType::kF32, 4, 3, 0);
  const Matrix half_a(DType::kBF16, 4, 3, 1), half_c(DType::kBF16, 4, 3, 0);
  EXPECT_DEATH(gemm(context, {a.view(), b.view(), c.view()}), "product \\(4, 3\\) \\* \\(4, 3\\) into \\(4, 3\\)");
  EXPECT_DEATH(gemm(context, {a.view(), half.view(), c.view()}), "product of f32 and bf16");
  EXPECT_DEATH(gemm(context, {half_a.view(), half.view(), half_c.view(), Trans::kNo, Trans::kNo, Write::kAdd}),
               "added into bf16");
  EXPECT_DEATH(gemm(context, {half_a.view(), half.view(), c.view()}), "scratch bytes, 0 are given");
}

// ---- linear
// ----------------------------------------------------------------------------------------------------------

struct LinearCase {
  int64_t tokens, in, out;
  DType dtype;
};

// The product itself is covered above: here the wiring, with operands exact in bf16 and sums exact in f32.
Matrix whole_numbers(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  Matrix result(dtype, rows, cols, seed, 3);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = 0; col < cols; ++col)
      ref::write_element(result.view(), row, col, std::round(result.at(row, col)));
  return result;
}

void check_linear(const LinearCase& c) {
  SCOPED_TRACE(fmt::format("{} tokens, {} -> {}, {}", c.tokens, c.in, c.out, dtype_name(c.dtype)));
  Team team(2);
  std::vector<std::byte> scratch(gemm_scratch_bytes(c.dtype, std::max(c.tokens, c.out), std::max(c.in, c.out),
                                                    std::max({c.in, c.out, c.tokens}), team.num_threads()));
  const Context context{team, scratch};
  const Matrix x = whole_numbers(c.dtype, c.tokens, c.in, 1), weight = whole_numbers(c.dtype, c.out, c.in, 2);
  const Matrix bias = whole_numbers(c.dtype, 1, c.out, 3), dy = whole_numbers(c.dtype, c.tokens, c.out, 4);
  const auto equal = [](int64_t, int64_t) { return 0.0; };

  Matrix y(c.dtype, c.tokens, c.out, 0, 3), y_expected = y;
  linear_forward(context, x.view(), weight.view(), bias.view(), y.view());
  ref::linear_forward(context, x.view(), weight.view(), bias.view(), y_expected.view());
  expect_close(y, y_expected, equal, "y");

  Matrix dx(c.dtype, c.tokens, c.in, 0, 3), dx_expected = dx;
  linear_backward_input(context, dy.view(), weight.view(), dx.view());
  ref::linear_backward_input(context, dy.view(), weight.view(), dx_expected.view());
  expect_close(dx, dx_expected, equal, "dx");

  for (const Write write : {Write::kSet, Write::kAdd}) {
    Matrix dweight = whole_numbers(DType::kF32, c.out, c.in, 5), dbias = whole_numbers(DType::kF32, 1, c.out, 6);
    Matrix dweight_expected = dweight, dbias_expected = dbias;
    linear_backward_weight(context, dy.view(), x.view(), dweight.view(), dbias.view(), write);
    ref::linear_backward_weight(context, dy.view(), x.view(), dweight_expected.view(), dbias_expected.view(), write);
    expect_close(dweight, dweight_expected, equal, "dweight");
    expect_close(dbias, dbias_expected, equal, "dbias");
  }
}

TEST(Linear, EqualsReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t tokens : {0, 1, 7, 33, 300})
      for (const auto& [in, out] : {std::pair{1, 1}, {33, 65}, {129, 300}}) check_linear({tokens, in, out, dtype});
}

TEST(Linear, BiasMayBeAbsent) {
  Team team(1);
  const Context context{team, {}};
  const Matrix x(DType::kF32, 3, 4, 1), weight(DType::kF32, 2, 4, 2), zero_bias = [] {
    Matrix zeros(DType::kF32, 1, 2, 0);
    ref::write_element(zeros.view(), 0, 0, 0.0);
    ref::write_element(zeros.view(), 0, 1, 0.0);
    return zeros;
  }();
  Matrix without(DType::kF32, 3, 2, 0), with(DType::kF32, 3, 2, 0), dweight(DType::kF32, 2, 4, 0);
  linear_forward(context, x.view(), weight.view(), {}, without.view());
  linear_forward(context, x.view(), weight.view(), zero_bias.view(), with.view());
  expect_close(without, with, [](int64_t, int64_t) { return 1e-6; });
  linear_backward_weight(context, without.view(), x.view(), dweight.view(), {}, Write::kSet);
}

TEST(LinearDeathTest, BiasOfAnotherLengthIsABug) {
  Team team(1);
  const Matrix x(DType::kF32, 3, 4, 1), weight(DType::kF32, 2, 4, 2), bias(DType::kF32, 1, 3, 1),
      y(DType::kF32, 3, 2, 1);
  EXPECT_DEATH(linear_forward({team, {}}, x.view(), weight.view(), bias.view(), y.view()),
               "bias \\(1, 3\\) for 2 columns");
  EXPECT_DEATH(linear_backward_weight({team, {}}, y.view(), x.view(), weight.view(), bias.view(), Write::kSet),
               "column sums of \\(3, 2\\) into \\(1, 3\\)");
}

}  // namespace
}  // namespace strata::kernels

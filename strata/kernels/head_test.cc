// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "strata/kernels/ref/products.h"
#include "strata/kernels/testing_matrix.h"

namespace strata::kernels {
namespace {

struct Case {
  int64_t tokens, hidden, vocab, tile;
  DType dtype;
  Write write;
};

constexpr float kScale = 0.25f;

std::vector<int32_t> targets_of(int64_t tokens, int64_t vocab) {
  std::vector<int32_t> targets(tokens);
  for (int64_t token = 0; token < tokens; ++token)
    targets[token] = token % 5 == 3 ? -1 : static_cast<int32_t>(token * 7919 % vocab);
  return targets;
}

struct Result {
  double loss = 0.5;  // losses are added to what is there
  Matrix dx, dweight;
};

// Of a head whose operands are slices of wider matrices.
struct Problem {
  explicit Problem(const Case& c)
      : c(c),
        x(c.dtype, c.tokens, c.hidden, 1, 3),
        weight(c.dtype, c.vocab, c.hidden, 2, 3),
        targets(targets_of(c.tokens, c.vocab)) {}

  Result start() const {
    return {0.5, Matrix(c.dtype, c.tokens, c.hidden, 0, 3),
            Matrix(DType::kF32, c.vocab, c.hidden, c.write == Write::kAdd ? 3 : 0, 3)};
  }

  Result reference() const {
    Team team(1);
    Result result = start();
    ref::head_forward_backward({team, {}}, {targets, c.tile}, kScale, x.view(), weight.view(), &result.loss,
                               result.dx.view(), result.dweight.view(), c.write);
    return result;
  }

  Result run(int threads) const {
    Team team(threads);
    std::vector<std::byte> scratch(head_scratch_bytes(c.dtype, c.tile, c.hidden, c.vocab, threads));
    Result result = start();
    head_forward_backward({team, scratch}, {targets, c.tile}, kScale, x.view(), weight.view(), &result.loss,
                          result.dx.view(), result.dweight.view(), c.write);
    double loss = 0.5;
    head_forward({team, scratch}, {targets, c.tile}, x.view(), weight.view(), &loss);
    EXPECT_EQ(loss, result.loss);
    return result;
  }

  Case c;
  Matrix x, weight;
  std::vector<int32_t> targets;
};

double largest(const Matrix& matrix) {
  double result = 0;
  for (int64_t row = 0; row < matrix.rows(); ++row)
    for (int64_t col = 0; col < matrix.cols(); ++col) result = std::max(result, std::abs(matrix.at(row, col)));
  return result;
}

void check(const Case& c) {
  SCOPED_TRACE(fmt::format("{} tokens, hidden {}, vocab {}, tile {}, {}", c.tokens, c.hidden, c.vocab, c.tile,
                           dtype_name(c.dtype)));
  const Problem problem(c);
  const Result expected = problem.reference(), actual = problem.run(1);
  // Errors in units of u = 2^-24. A logit and the log of the sum: (hidden + 2) times the magnitude of its products,
  // which is at most hidden * max|x| * max|weight|, and the vocab additions of the sum. The loss is the difference of
  // two.
  const double x_size = largest(problem.x), weight_size = largest(problem.weight);
  const double logit =
      0x1p-24 * (static_cast<double>(c.hidden) + 8) * static_cast<double>(c.hidden) * x_size * weight_size;
  const double sum = logit + 0x1p-24 * static_cast<double>(c.vocab + 8);
  EXPECT_NEAR(actual.loss, expected.loss, static_cast<double>(c.tokens) * (logit + sum));
  // A gradient of a logit is off by (logit + sum) relative, plus one rounding to the storage; all of one token sum to
  // at most 2 * scale in magnitude. Then products over vocab and over tokens, and the roundings of the results.
  const double relative = logit + sum + unit_roundoff(c.dtype);
  const double dx_bound = 2 * kScale * weight_size * (relative + 0x1p-24 * static_cast<double>(c.vocab));
  expect_close(
      actual.dx, expected.dx,
      [&](int64_t row, int64_t col) { return dx_bound + unit_roundoff(c.dtype) * std::abs(expected.dx.at(row, col)); },
      "dx");
  const double tokens = static_cast<double>(c.tokens);
  const double dweight_bound =
      kScale * tokens * x_size * (relative + 0x1p-24 * tokens) + 0x1p-23 * largest(expected.dweight);
  expect_close(
      actual.dweight, expected.dweight, [&](int64_t, int64_t) { return dweight_bound; }, "dweight");
  for (const int threads : {2, 3}) {
    const Result other = problem.run(threads);
    EXPECT_EQ(other.loss, actual.loss);
    EXPECT_EQ(other.dx, actual.dx);
    EXPECT_EQ(other.dweight, actual.dweight);
  }
}

TEST(Head, EqualsReferenceForAnyTeam) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Write write : {Write::kSet, Write::kAdd}) {
      check({1, 7, 33, 4, dtype, write});
      check({7, 1, 1, 3, dtype, write});
      check({33, 65, 129, 16, dtype, write});
      check({33, 65, 129, 64, dtype, write});
      check({9, 8, 5000, 4, dtype, write});
    }
}

TEST(Head, NoTokensGiveNoLossAndZeroGradients) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check({0, 7, 33, 4, dtype, Write::kSet});
    check({0, 7, 33, 4, dtype, Write::kAdd});
  }
}

TEST(Head, GradientsOfTheReferenceAreDifferences) {
  const Case c{4, 3, 5, 4, DType::kF32, Write::kSet};
  Problem problem(c);
  const Result gradients = problem.reference();
  // Central differences in double of a loss with third derivatives of order 1: error step^2 / 6, plus the rounding of
  // the stepped f32 operand (u / step) and of the gradient.
  constexpr double kStep = 0x1p-10, kPermitted = 1e-5;
  const auto loss = [&] { return kScale * problem.reference().loss; };
  expect_slopes(problem.x, gradients.dx, kStep, kPermitted, loss);
  expect_slopes(problem.weight, gradients.dweight, kStep, kPermitted, loss);
}

TEST(Head, ANonFiniteWeightShowsInTheLoss) {
  Problem problem({3, 7, 33, 4, DType::kF32, Write::kSet});
  ref::write_element(problem.weight.view(), 20, 3, std::numeric_limits<double>::quiet_NaN());
  std::fill(problem.targets.begin(), problem.targets.end(), 1);
  Team team(1);
  std::vector<std::byte> scratch(head_scratch_bytes(DType::kF32, 4, 7, 33, 1));
  double loss = 0;
  head_forward({team, scratch}, {problem.targets, 4}, problem.x.view(), problem.weight.view(), &loss);
  EXPECT_TRUE(std::isnan(loss));
}

TEST(Head, Logits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Problem problem({3, 65, 129, 4, dtype, Write::kSet});
    Team team(2);
    std::vector<std::byte> scratch(head_scratch_bytes(dtype, 3, 65, 129, 2));
    Matrix logits(DType::kF32, 3, 129, 0), expected(DType::kF32, 3, 129, 0);
    head_logits({team, scratch}, problem.x.view(), problem.weight.view(), logits.view());
    ref::head_logits({team, {}}, problem.x.view(), problem.weight.view(), expected.view());
    const double bound = 0x1p-24 * 67 * 65 * largest(problem.x) * largest(problem.weight);
    expect_close(logits, expected, [&](int64_t, int64_t) { return bound; });
  }
}

TEST(HeadDeathTest, MisuseIsABug) {
  Problem problem({3, 7, 33, 4, DType::kF32, Write::kSet});
  Team team(1);
  std::vector<std::byte> scratch(head_scratch_bytes(DType::kF32, 4, 7, 33, 1));
  double loss = 0;
  const auto forward = [&](const TensorView& x, int64_t tile) {
    head_forward({team, scratch}, {problem.targets, tile}, x, problem.weight.view(), &loss);
  };
  EXPECT_DEATH(forward(problem.x.view().slice_cols(0, 6), 4), "x \\(3, 6\\) f32 and weight \\(33, 7\\)");
  EXPECT_DEATH(forward(problem.x.view().slice_rows(0, 2), 4), "3 targets for 2 tokens");
  EXPECT_DEATH(forward(problem.x.view(), 0), "a tile of 0 tokens");
  problem.targets[1] = 33;
  EXPECT_DEATH(forward(problem.x.view(), 4), "target 33 is outside \\[-1, 33\\)");
  problem.targets[1] = -2;
  EXPECT_DEATH(forward(problem.x.view(), 4), "target -2 is outside");
}

}  // namespace
}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
// The head over parts of the vocabulary: together they are the whole head.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "strata/kernels/ref/products.h"
#include "strata/kernels/testing_matrix.h"

namespace strata::kernels {
namespace {

struct Case {
  int64_t tokens, hidden, vocab, parts;
  DType dtype;
  Write write;
};

constexpr float kScale = 0.25f;

struct Result {
  double loss = 0.5;  // losses are added to what is there
  Matrix dx, dweight;
};

struct Reference {
  static constexpr auto statistics = [](auto&&... args) { ref::head_statistics(args...); };
  static constexpr auto loss = [](auto&&... args) { ref::head_loss(args...); };
  static constexpr auto gradients = [](auto&&... args) { ref::head_gradients(args...); };
};
struct Fast {
  static constexpr auto statistics = [](auto&&... args) { head_statistics(args...); };
  static constexpr auto loss = [](auto&&... args) { head_loss(args...); };
  static constexpr auto gradients = [](auto&&... args) { head_gradients(args...); };
};

struct Problem {
  explicit Problem(const Case& problem)
      : c(problem),
        x(c.dtype, c.tokens, c.hidden, 1, 3),
        weight(c.dtype, c.vocab, c.hidden, 2, 3),
        targets(static_cast<size_t>(c.tokens)) {
    for (int64_t token = 0; token < c.tokens; ++token)
      targets[token] = token % 5 == 3 ? -1 : static_cast<int32_t>(token * 7919 % c.vocab);
  }

  int64_t first_word(int64_t part) const { return c.vocab * part / c.parts; }
  HeadTile tile(int64_t part) const { return {targets, first_word(part), c.vocab}; }
  TensorView words(const Matrix& matrix, int64_t part) const {
    return matrix.view().slice_rows(first_word(part), first_word(part + 1) - first_word(part));
  }

  Result start() const {
    return {0.5, Matrix(c.dtype, c.tokens, c.hidden, 0, 3),
            Matrix(DType::kF32, c.vocab, c.hidden, c.write == Write::kAdd ? 3 : 0, 3)};
  }

  // All parts in turn, as ranks would; dx is the f32 sum of the parts' in order.
  template <typename Kernels>
  Result run(int threads) const {
    Team team(threads);
    std::vector<std::byte> scratch(head_tile_scratch_bytes(c.dtype, c.tokens, c.hidden, c.vocab, threads));
    const Context context{team, scratch};
    std::vector<Matrix> logits;
    const Matrix statistics(DType::kF32, c.parts * c.tokens, kHeadStatistics, 0);
    for (int64_t part = 0; part < c.parts; ++part) {
      logits.emplace_back(DType::kF32, c.tokens, words(weight, part).rows, 0);
      Kernels::statistics(context, tile(part), x.view(), words(weight, part), logits.back().view(),
                          statistics.view().slice_rows(part * c.tokens, c.tokens));
    }
    Result result = start();
    Kernels::loss(tile(0), statistics.view(), &result.loss);
    Matrix sum(DType::kF32, c.tokens, c.hidden, 0);
    for (int64_t part = 0; part < c.parts; ++part) {
      Kernels::gradients(context, tile(part), kScale, x.view(), words(weight, part), logits[part].view(),
                         statistics.view(), result.dx.view(), words(result.dweight, part), c.write);
      for (int64_t row = 0; row < c.tokens; ++row)
        for (int64_t col = 0; col < c.hidden; ++col)
          ref::write_element(sum.view(), row, col, result.dx.at(row, col) + (part > 0 ? sum.at(row, col) : 0.0));
    }
    result.dx = sum;
    return result;
  }

  Result whole() const {
    Team team(1);
    Result result = start();
    ref::head_forward_backward({team, {}}, {targets, 4}, kScale, x.view(), weight.view(), &result.loss,
                               result.dx.view(), result.dweight.view(), c.write);
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

// The bounds of head_test.cc, and what the exchange adds: three roundings to f32 of a statistic (of the logits' size,
// and of the sum relatively), and a rounding of dx for every part.
void expect_whole(const Problem& problem, const Result& actual, const char* what) {
  const Case& c = problem.c;
  const Result expected = problem.whole();
  const double x_size = largest(problem.x), weight_size = largest(problem.weight);
  const double logit =
      0x1p-24 * (static_cast<double>(c.hidden) + 10) * static_cast<double>(c.hidden) * x_size * weight_size;
  const double sum = logit + 0x1p-24 * static_cast<double>(c.vocab + 10);
  EXPECT_NEAR(actual.loss, expected.loss, static_cast<double>(c.tokens) * (logit + sum)) << what;
  const double relative = logit + sum + unit_roundoff(c.dtype);
  const double dx_bound =
      2 * kScale * weight_size *
      (relative + 0x1p-24 * static_cast<double>(c.vocab) + unit_roundoff(c.dtype) * static_cast<double>(c.parts + 1));
  expect_close(
      actual.dx, expected.dx, [&](int64_t, int64_t) { return dx_bound; }, what);
  const double tokens = static_cast<double>(c.tokens);
  const double dweight_bound =
      kScale * tokens * x_size * (relative + 0x1p-24 * tokens) + 0x1p-23 * largest(expected.dweight);
  expect_close(
      actual.dweight, expected.dweight, [&](int64_t, int64_t) { return dweight_bound; }, what);
}

TEST(HeadTile, PartsOfTheVocabularyAreTheWholeHead) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Write write : {Write::kSet, Write::kAdd})
      for (const auto& [tokens, hidden, vocab, parts] :
           {std::array<int64_t, 4>{1, 7, 33, 1}, {7, 1, 3, 3}, {33, 65, 129, 2}, {9, 8, 5000, 7}, {5, 16, 31, 6}}) {
        SCOPED_TRACE(fmt::format("{} tokens, hidden {}, vocab {}, {} parts, {}", tokens, hidden, vocab, parts,
                                 dtype_name(dtype)));
        const Problem problem({tokens, hidden, vocab, parts, dtype, write});
        const Result actual = problem.run<Fast>(1);
        expect_whole(problem, actual, "fast");
        expect_whole(problem, problem.run<Reference>(1), "reference");
        const Result other = problem.run<Fast>(3);
        EXPECT_EQ(other.loss, actual.loss);
        EXPECT_EQ(other.dx, actual.dx);
        EXPECT_EQ(other.dweight, actual.dweight);
      }
}

TEST(HeadTile, NoTokensGiveNoLossAndZeroGradients) {
  for (const Write write : {Write::kSet, Write::kAdd}) {
    const Problem problem({0, 7, 33, 2, DType::kF32, write});
    expect_whole(problem, problem.run<Fast>(1), "fast");
  }
}

TEST(HeadTile, GradientsOfTheReferenceAreDifferences) {
  const Case c{4, 3, 5, 2, DType::kF32, Write::kSet};
  Problem problem(c);
  const Result gradients = problem.run<Reference>(1);
  // Central differences of a loss whose statistics are rounded to f32 (2^-24 of logits up to 10 for each of 4 tokens,
  // over twice the step), with third derivatives of order 1.
  constexpr double kStep = 0x1p-6, kPermitted = kStep * kStep / 6 + 4 * 10 * 0x1p-24 / (2 * kStep) + 1e-6;
  const auto loss = [&] { return kScale * problem.run<Reference>(1).loss; };
  expect_slopes(problem.x, gradients.dx, kStep, kPermitted, loss);
  expect_slopes(problem.weight, gradients.dweight, kStep, kPermitted, loss);
}

TEST(HeadTile, ANonFiniteWeightOfOnePartShowsInTheLoss) {
  Problem problem({3, 7, 33, 3, DType::kF32, Write::kSet});
  ref::write_element(problem.weight.view(), 20, 3, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(problem.run<Fast>(1).loss));
}

TEST(HeadTileDeathTest, MisuseIsABug) {
  const Problem problem({3, 7, 33, 2, DType::kF32, Write::kSet});
  Team team(1);
  const Matrix logits(DType::kF32, 3, 33, 0), statistics(DType::kF32, 6, kHeadStatistics, 0);
  double loss = 0;
  const auto run = [&](const HeadTile& tile, const TensorView& into) {
    head_statistics({team, {}}, tile, problem.x.view(), problem.weight.view(), logits.view(), into);
  };
  EXPECT_DEATH(run({problem.targets, 1, 33}, statistics.view()), "33 words from 1 on of a vocabulary of 33");
  EXPECT_DEATH(run({problem.targets, 0, 33}, statistics.view().slice_cols(0, 2)), "statistics \\(6, 2\\) of 3 tokens");
  EXPECT_DEATH(head_loss({problem.targets, 0, 33}, statistics.view().slice_rows(0, 5), &loss),
               "statistics \\(5, 3\\) of 3 tokens");
}

}  // namespace
}  // namespace strata::kernels

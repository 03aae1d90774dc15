// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "strata/kernels/cpu/testing_targets.h"
#include "strata/kernels/ref/elementwise.h"

namespace strata::kernels {
namespace {

constexpr int64_t kVocab = 11, kMaxPositions = 9;

struct Problem {
  Problem(DType dtype, int64_t tokens, int64_t hidden, float rate)
      : dtype(dtype),
        token_table(dtype, kVocab, hidden, 1, 2),
        position_table(dtype, kMaxPositions, hidden, 2),
        dx(dtype, tokens, hidden, 3, 1) {
    for (int64_t i = 0; i < tokens; ++i) {
      ids.push_back(static_cast<int32_t>(i * i % (kVocab - 1)));  // repeats; the last id never occurs
      positions.push_back(static_cast<int32_t>(i % kMaxPositions));
      indices.push_back(1000 + i);
    }
    dropout = {rate, 42, indices};
  }

  DType dtype;
  Matrix token_table, position_table, dx;
  std::vector<int32_t> ids, positions;
  std::vector<int64_t> indices;
  Dropout dropout;
};

template <typename Body>
void for_each_problem(Body body) {
  for (const float rate : {0.0f, 0.25f})
    for (const DType dtype : kTestStorage)
      for (const auto& [tokens, hidden] : kTestShapes) {
        SCOPED_TRACE(fmt::format("rate {} {} {} x {}", rate, dtype_name(dtype), tokens, hidden));
        const Problem problem(dtype, tokens, hidden, rate);
        body(problem);
      }
}

TEST(Embedding, ForwardIsTheReference) {
  Team team(1);
  for_each_target([&] {
    for_each_problem([&](const Problem& p) {
      for (const TensorView& position_table : {TensorView(), p.position_table.view()}) {
        const Matrix x = on_any_team([&](const Context& context) {
          const Matrix x(p.dtype, p.dx.rows(), p.dx.cols(), 0, 3);
          embedding_forward(context, p.ids, p.positions, p.token_table.view(), position_table, p.dropout, x.view());
          return x;
        });
        const Matrix expected(DType::kF32, p.dx.rows(), p.dx.cols(), 0);
        ref::embedding_forward({team, {}}, p.ids, p.positions, p.token_table.view(), position_table, p.dropout,
                               expected.view());
        expect_close(x, expected, [&](int64_t row, int64_t col) {  // a rounding of the sum, one of the product
          return 2 * 0x1p-24 * std::abs(expected.at(row, col)) + storage_bound(p.dtype, expected.at(row, col));
        });
      }
    });
  });
}

double largest_of(const Matrix& matrix) {
  double result = 0;
  for (int64_t row = 0; row < matrix.rows(); ++row)
    for (int64_t col = 0; col < matrix.cols(); ++col) result = std::max(result, std::abs(matrix.at(row, col)));
  return result;
}

struct Gradients {
  Matrix dtoken, dposition, dx;
  bool operator==(const Gradients&) const = default;
};

template <typename Backward>
Gradients run_backward(const Context& context, const Problem& p, bool with_positions, Write write, Backward backward) {
  Gradients g = {Matrix(DType::kF32, kVocab, p.dx.cols(), 5, 3), Matrix(DType::kF32, kMaxPositions, p.dx.cols(), 6),
                 p.dx};
  backward(context, p.ids, p.positions, g.dx.view(), p.dropout, g.dtoken.view(),
           with_positions ? g.dposition.view() : TensorView(), write, write);
  return g;
}

TEST(Embedding, BackwardEqualsTheReferenceForAnyTeam) {
  Team team(1);
  for_each_target([&] {
    for_each_problem([&](const Problem& p) {
      for (const bool with_positions : {true, false})
        for (const Write write : {Write::kSet, Write::kAdd}) {
          if (!with_positions && write == Write::kSet) continue;
          const auto fast = [](auto&&... args) { embedding_backward(args...); };
          const auto plain = [](auto&&... args) { ref::embedding_backward(args...); };
          const Gradients actual = on_any_team(
              [&](const Context& context) { return run_backward(context, p, with_positions, write, fast); });
          const Gradients expected = run_backward({team, {}}, p, with_positions, write, plain);
          const auto equal = [](int64_t, int64_t) { return 0.0; };  // the same f32 additions in the same order
          expect_close(actual.dtoken, expected.dtoken, equal, "dtoken");
          expect_close(actual.dposition, expected.dposition, equal, "dposition");
          expect_close(actual.dx, expected.dx, equal, "dx");
        }
    });
  });
}

// The parts' x add up to that of whole tables, and their gradients are its rows.
TEST(Embedding, PartsOfTheTablesAreTheWhole) {
  Team team(1);
  const Context context{team, {}};
  for_each_problem([&](const Problem& p) {
    const int64_t tokens = p.dx.rows(), hidden = p.dx.cols();
    const Matrix whole(p.dtype, tokens, hidden, 0), sum(DType::kF32, tokens, hidden, 0);
    ref::embedding_forward(context, p.ids, p.positions, p.token_table.view(), p.position_table.view(), p.dropout,
                           whole.view());
    const auto plain = [](auto&&... args) { ref::embedding_backward(args...); };
    const Gradients expected = run_backward(context, p, true, Write::kSet, plain);
    Gradients actual = run_backward(context, p, true, Write::kAdd, [](auto&&...) {});
    constexpr int64_t kParts = 3;
    for (int64_t part = 0; part < kParts; ++part) {
      const auto rows_of = [&](const TensorView& table) {
        const int64_t first = table.rows * part / kParts, end = table.rows * (part + 1) / kParts;
        return TablePart(table.slice_rows(first, end - first), first, table.rows);
      };
      const Matrix x(p.dtype, tokens, hidden, 0), dx = p.dx;
      embedding_forward(context, p.ids, p.positions, rows_of(p.token_table.view()), rows_of(p.position_table.view()),
                        p.dropout, x.view());
      for (int64_t row = 0; row < tokens; ++row)
        for (int64_t col = 0; col < hidden; ++col)
          ref::write_element(sum.view(), row, col, x.at(row, col) + (part > 0 ? sum.at(row, col) : 0.0));
      embedding_backward(context, p.ids, p.positions, dx.view(), p.dropout, rows_of(actual.dtoken.view()),
                         rows_of(actual.dposition.view()), Write::kSet, Write::kSet);
    }
    // Token and position may come from two parts, each rounded behind its dropout; the token's is at most |x| + the
    // position's. The whole is rounded once, the sum once.
    const double position_size = largest_of(p.position_table) / (1 - p.dropout.rate);
    expect_close(sum, whole, [&](int64_t row, int64_t col) {
      return 3 * unit_roundoff(p.dtype) * (std::abs(whole.at(row, col)) + position_size);
    });
    const auto equal = [](int64_t, int64_t) { return 0.0; };
    expect_close(actual.dtoken, expected.dtoken, equal, "dtoken");
    expect_close(actual.dposition, expected.dposition, equal, "dposition");
  });
}

TEST(Embedding, SplitsManyTokensOverChannels) {
  const Problem p(DType::kF32, 400, 100, 0.0f);
  const auto fast = [](auto&&... args) { embedding_backward(args...); };
  const Gradients g =
      on_any_team([&](const Context& context) { return run_backward(context, p, true, Write::kSet, fast); });
  double sum = 0;
  for (int64_t token = 0; token < 400; ++token) sum += p.ids[token] == 4 ? p.dx.at(token, 77) : 0.0;
  EXPECT_NEAR(g.dtoken.at(4, 77), sum, 400 * 0x1p-24 * 64);
  EXPECT_EQ(g.dtoken.at(kVocab - 1, 77), 0.0);
}

TEST(Embedding, ReferenceGradientsAreFiniteDifferences) {
  Team team(1);
  const Problem p(DType::kF32, 13, 5, 0.25f);
  const Matrix x(DType::kF32, 13, 5, 0), dtoken(DType::kF32, kVocab, 5, 0), dposition(DType::kF32, kMaxPositions, 5, 0),
      dx = p.dx;
  const auto loss = [&] {
    ref::embedding_forward({team, {}}, p.ids, p.positions, p.token_table.view(), p.position_table.view(), p.dropout,
                           x.view());
    return dot(x, p.dx);
  };
  ref::embedding_backward({team, {}}, p.ids, p.positions, dx.view(), p.dropout, dtoken.view(), dposition.view(),
                          Write::kSet, Write::kSet);
  expect_gradient(p.token_table, dtoken, loss, 3e-4);  // linear: only the rounding of up to 13 outputs
  expect_gradient(p.position_table, dposition, loss, 3e-4);
}

TEST(EmbeddingDeathTest, RefusesIndicesOutsideTheTables) {
  Team team(1);
  Problem p(DType::kF32, 2, 4, 0.0f);
  const auto forward = [&] {
    embedding_forward({team, {}}, p.ids, p.positions, p.token_table.view(), p.position_table.view(), p.dropout,
                      p.dx.view());
  };
  const TablePart beyond(p.token_table.view(), 3, kVocab);
  EXPECT_DEATH(embedding_forward({team, {}}, p.ids, p.positions, beyond, TensorView(), p.dropout, p.dx.view()),
               "11 rows from 3 on of a token table of 11");
  p.positions[1] = kMaxPositions;
  EXPECT_DEATH(forward(), "position 9 of a table of 9");
  p.ids[0] = -1;
  EXPECT_DEATH(forward(), "token id -1 of a table of 11");
  p.ids.pop_back();
  EXPECT_DEATH(forward(), "1 token ids for 2 tokens");
}

}  // namespace
}  // namespace strata::kernels

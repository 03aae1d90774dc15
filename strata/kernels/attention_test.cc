// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "strata/kernels/ref/products.h"
#include "strata/kernels/testing_matrix.h"
#include "strata/spec/context_pieces.h"

namespace strata::kernels {
namespace {

struct Case {
  int64_t heads, kv_heads, head_dim;
  std::vector<int32_t> q_offsets, kv_offsets;
  DType dtype = DType::kF32;
  float dropout = 0.0f;
  // Pieces of sequences: their first positions; none: one piece per sequence.
  int64_t pieces = 1;
  std::vector<int32_t> q_positions = {}, kv_positions = {};
};

struct Gradients {
  Matrix dq, dk, dv;
};

double largest(const Matrix& matrix) {
  double result = 0;
  for (int64_t row = 0; row < matrix.rows(); ++row)
    for (int64_t col = 0; col < matrix.cols(); ++col) result = std::max(result, std::abs(matrix.at(row, col)));
  return result;
}

// What a rank of a context-parallel group has of sequences of these lengths.
struct Pieces {
  Pieces(const std::vector<int32_t>& lengths, int64_t ranks, int64_t rank) {
    for (const int32_t length : lengths)
      for (const TokenRange& range : context_pieces(length, ranks, rank)) {
        positions.push_back(static_cast<int32_t>(range.begin));
        offsets.push_back(offsets.back() + static_cast<int32_t>(range.count));
      }
  }
  std::vector<int32_t> offsets = {0}, positions;
};

// One attention with its reference; q, k and v are slices of wider matrices.
struct Problem {
  explicit Problem(const Case& c)
      : c(c),
        q(like_q(1)),
        k(like_k(2)),
        v(like_k(3)),
        dout(like_q(4)),
        out(like_q(0)),
        lse(DType::kF32, c.q_offsets.back(), c.heads, 0),
        tokens(c.q_offsets.back()) {
    for (size_t row = 0; row < tokens.size(); ++row) tokens[row] = static_cast<int64_t>(row * 3 + 5);
    Team team(1);
    ref::attention_forward({team, {}}, args(), q.view(), k.view(), v.view(), out.view(), lse.view());
  }

  Matrix like_q(uint64_t seed) const { return {c.dtype, c.q_offsets.back(), c.heads * c.head_dim, seed, 3}; }
  Matrix like_k(uint64_t seed) const { return {c.dtype, c.kv_offsets.back(), c.kv_heads * c.head_dim, seed, 5}; }

  AttentionArgs args() const {
    return {c.heads, c.kv_heads, c.head_dim,    c.q_offsets,   c.kv_offsets, {c.dropout, 77, tokens},
            0,       c.pieces,   c.q_positions, c.kv_positions};
  }

  int64_t scratch_bytes(int threads) const {
    int64_t max_seq = 0;
    const auto pieces = static_cast<size_t>(c.pieces);
    for (size_t i = pieces; i < c.kv_offsets.size(); i += pieces)
      max_seq = std::max<int64_t>(
          {max_seq, c.kv_offsets[i] - c.kv_offsets[i - pieces], c.q_offsets[i] - c.q_offsets[i - pieces]});
    return attention_scratch_bytes(c.dtype, c.head_dim, max_seq, threads);
  }

  std::pair<Matrix, Matrix> forward(int threads) const {
    Team team(threads);
    std::vector<std::byte> scratch(scratch_bytes(threads));
    std::pair<Matrix, Matrix> result(like_q(0), Matrix(DType::kF32, c.q_offsets.back(), c.heads, 0, 2));
    attention_forward({team, scratch}, args(), q.view(), k.view(), v.view(), result.first.view(), result.second.view());
    return result;
  }

  Gradients backward(int threads) const {
    Team team(threads);
    std::vector<std::byte> scratch(scratch_bytes(threads));
    Gradients result{like_q(0), like_k(0), like_k(0)};
    attention_backward({team, scratch}, args(), q.view(), k.view(), v.view(), out.view(), lse.view(), dout.view(),
                       result.dq.view(), result.dk.view(), result.dv.view());
    return result;
  }

  Gradients reference(const Matrix& of_out) const {
    Team team(1);
    Gradients result{like_q(0), like_k(0), like_k(0)};
    ref::attention_backward({team, {}}, args(), q.view(), k.view(), v.view(), out.view(), lse.view(), of_out.view(),
                            result.dq.view(), result.dk.view(), result.dv.view());
    return result;
  }

  // Sum over queries of the probabilities of every key, times the factors of dropout: dv for a dout of ones.
  Matrix key_weights() const {
    Matrix ones = dout;
    for (int64_t row = 0; row < ones.rows(); ++row)
      for (int64_t col = 0; col < ones.cols(); ++col) ref::write_element(ones.view(), row, col, 1.0);
    return reference(ones).dv;
  }

  Case c;
  Matrix q, k, v, dout, out, lse;
  std::vector<int64_t> tokens;
};

// Bounds on the error, from u = 2^-24 and the largest magnitudes of the operands.
struct Bounds {
  explicit Bounds(const Problem& problem) {
    const double dim = static_cast<double>(problem.c.head_dim), rows = static_cast<double>(problem.k.rows());
    scale = 1 / std::sqrt(dim);
    keep = 1 / (1 - problem.c.dropout);
    q = largest(problem.q), k = largest(problem.k), v = largest(problem.v), dout = largest(problem.dout);
    // A score: head_dim products summed, scaled, brought to the largest. Sums of normal numbers are far below
    // head_dim * max * max; three standard deviations of the sum of magnitudes are 0.64 head_dim + 3 sqrt(head_dim).
    const double products = std::min(dim * q * k, (0.64 * dim + 3 * std::sqrt(dim)) * 2);
    score = 0x1p-24 * (dim + 8) * products * scale;
    // A probability, relative: two exponentials of scores and the sum of all of them.
    probability = 2 * score + 0x1p-24 * (rows + 16);
    const double dproducts = std::min(dim * v * dout, (0.64 * dim + 3 * std::sqrt(dim)) * 2) * keep;
    // dscore / probability = dprobability - delta, each a sum of head_dim products.
    dscore = 2 * dproducts * (probability + 0x1p-24 * (dim + rows + 8));
  }
  double scale, keep, q, k, v, dout, score, probability, dscore;
};

void check(const Case& c) {
  SCOPED_TRACE(fmt::format("{} heads, {} kv heads of {}, {} rows, {}, dropout {}", c.heads, c.kv_heads, c.head_dim,
                           c.q_offsets.back(), dtype_name(c.dtype), c.dropout));
  const Problem problem(c);
  const Bounds bounds(problem);
  const double storage = unit_roundoff(c.dtype);

  const auto [out, lse] = problem.forward(1);
  // The probabilities of a query sum to one.
  expect_close(
      out, problem.out,
      [&](int64_t row, int64_t col) {
        return bounds.v * bounds.keep * bounds.probability + storage * std::abs(problem.out.at(row, col)) * 2;
      },
      "out");
  expect_close(
      lse, problem.lse,
      [&](int64_t row, int64_t col) { return bounds.probability + 0x1p-23 * std::abs(problem.lse.at(row, col)); },
      "lse");

  const Gradients actual = problem.backward(1), expected = problem.reference(problem.dout);
  expect_close(
      actual.dq, expected.dq,
      [&](int64_t row, int64_t col) {
        return bounds.scale * bounds.k * bounds.dscore + 2 * storage * std::abs(expected.dq.at(row, col));
      },
      "dq");
  const Matrix weights = problem.key_weights();
  const double unkept = bounds.keep;  // a dropped probability still has a dscore
  expect_close(
      actual.dk, expected.dk,
      [&](int64_t row, int64_t col) {
        return (weights.at(row, col) + 1) * unkept * bounds.scale * bounds.q * bounds.dscore +
               2 * storage * std::abs(expected.dk.at(row, col));
      },
      "dk");
  expect_close(
      actual.dv, expected.dv,
      [&](int64_t row, int64_t col) {
        return weights.at(row, col) * bounds.dout * bounds.probability +
               2 * storage * std::abs(expected.dv.at(row, col));
      },
      "dv");

  for (const int threads : {2, 3}) {
    EXPECT_EQ(problem.forward(threads).first, out);
    EXPECT_EQ(problem.forward(threads).second, lse);
    const Gradients other = problem.backward(threads);
    EXPECT_TRUE(other.dq == actual.dq && other.dk == actual.dk && other.dv == actual.dv);
  }
}

// Lengths 1, 0, 33, 7: a sequence per offset, none and several tiles of queries.
const std::vector<int32_t> kPacked = {0, 1, 1, 34, 41};

TEST(Attention, EqualsReferenceOnPackedSequences) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const float dropout : {0.0f, 0.25f}) {
      check({1, 1, 1, kPacked, kPacked, dtype, dropout});
      check({4, 2, 8, kPacked, kPacked, dtype, dropout});
      check({3, 3, 33, kPacked, kPacked, dtype, dropout});
      check({6, 1, 64, kPacked, kPacked, dtype, dropout});
    }
}

TEST(Attention, EqualsReferenceAcrossTiles) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const float dropout : {0.0f, 0.25f}) {
      check({2, 1, 16, {0, 129, 430}, {0, 129, 430}, dtype, dropout});  // two key tiles
      check({1, 1, 4, {0, 600}, {0, 600}, dtype, dropout});             // two chunks of queries, three key tiles
    }
}

TEST(Attention, EqualsReferenceWithFewerQueriesThanKeys) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check({4, 2, 16, {0, 1}, {0, 300}, dtype});
    check({4, 2, 16, {0, 3, 3, 40, 41}, {0, 260, 265, 325, 326}, dtype, 0.25f});
  }
}

// Two pieces of every sequence, as a rank of a context-parallel group meets them: keys of its own, of an earlier and of
// a later rank; sequences that have no tokens here or there.
TEST(Attention, EqualsReferenceOnPieces) {
  const std::vector<int32_t> lengths = {24, 3, 1, 0, 90};
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const float dropout : {0.0f, 0.25f})
      for (int64_t of_queries = 0; of_queries < 3; ++of_queries)
        for (int64_t of_keys = 0; of_keys < 3; ++of_keys) {
          const Pieces q(lengths, 3, of_queries), kv(lengths, 3, of_keys);
          check({4, 2, 8, q.offsets, kv.offsets, dtype, dropout, 2, q.positions, kv.positions});
        }
}

// Positions at which a tile of keys begins inside a block of random numbers, and several tiles.
TEST(Attention, EqualsReferenceOnLongPieces) {
  const std::vector<int32_t> lengths = {1402};
  for (int64_t of_keys = 0; of_keys < 2; ++of_keys) {
    const Pieces q(lengths, 2, 1), kv(lengths, 2, of_keys);
    check({1, 1, 4, q.offsets, kv.offsets, DType::kF32, 0.25f, 2, q.positions, kv.positions});
  }
}

// The rows of a sequence's pieces, in the order in which a rank has them.
Matrix rows_of(const Matrix& whole, const Pieces& pieces, const std::vector<int32_t>& begins, uint64_t seed) {
  Matrix part(whole.view().dtype, pieces.offsets.back(), whole.cols(), seed, 3);
  for (size_t piece = 0; piece < pieces.positions.size(); ++piece)
    for (int64_t row = pieces.offsets[piece]; row < pieces.offsets[piece + 1]; ++row)
      for (int64_t col = 0; col < whole.cols(); ++col)
        ref::write_element(part.view(), row, col,
                           whole.at(begins[piece / 2] + pieces.positions[piece] + row - pieces.offsets[piece], col));
  return part;
}

Matrix zeros(int64_t rows, int64_t cols) {
  Matrix matrix(DType::kF32, rows, cols, 0, 3);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = 0; col < cols; ++col) ref::write_element(matrix.view(), row, col, 0.0);
  return matrix;
}

// Ranks that attend the keys of one rank after the other, the own ones first, get the rows of attention over whole
// sequences; gradients of keys are the sums over all ranks. Rounding: a merge scales what it holds by a number near 1,
// the gradients are other orders of the same sums.
TEST(Attention, SlicesAddUpToTheWhole) {
  const std::vector<int32_t> lengths = {24, 3, 1, 0, 590}, offsets = {0, 24, 27, 28, 28, 618};
  constexpr int64_t kRanks = 3;
  for (const float dropout : {0.0f, 0.25f}) {
    const Case whole{4, 2, 8, offsets, offsets, DType::kF32, dropout};
    const Problem problem(whole);
    const Gradients expected = problem.reference(problem.dout);
    std::vector<Pieces> pieces;
    std::vector<Matrix> dk, dv;
    for (int64_t rank = 0; rank < kRanks; ++rank) pieces.emplace_back(lengths, kRanks, rank);
    for (const Pieces& part : pieces)
      for (auto* sums : {&dk, &dv}) sums->push_back(zeros(part.offsets.back(), 16));
    const auto near = [](const Matrix& expect) {
      return [&expect](int64_t row, int64_t col) { return 2e-5 * (1 + std::abs(expect.at(row, col))); };
    };
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      const Pieces& own = pieces[static_cast<size_t>(rank)];
      const Matrix q = rows_of(problem.q, own, offsets, 1), dout = rows_of(problem.dout, own, offsets, 2);
      Matrix out = rows_of(problem.out, own, offsets, 3), lse = rows_of(problem.lse, own, offsets, 4);
      const Matrix expected_out = out, expected_lse = lse;
      Matrix dq = zeros(own.offsets.back(), 32);
      std::vector<int64_t> tokens;
      for (size_t piece = 0; piece < own.positions.size(); ++piece)
        for (int64_t row = own.offsets[piece]; row < own.offsets[piece + 1]; ++row)
          tokens.push_back(3 * (offsets[piece / 2] + own.positions[piece] + row - own.offsets[piece]) + 5);
      Team team(2);
      std::vector<std::byte> scratch(attention_scratch_bytes(DType::kF32, 8, 590, 2));
      const auto with_keys_of = [&](int64_t step, auto call) {
        const auto other = static_cast<size_t>((rank - step + kRanks) % kRanks);
        const Pieces& theirs = pieces[other];
        const AttentionArgs args{4,
                                 2,
                                 8,
                                 own.offsets,
                                 theirs.offsets,
                                 {dropout, 77, tokens},
                                 0,
                                 2,
                                 own.positions,
                                 theirs.positions,
                                 step == 0 ? Write::kSet : Write::kAdd};
        const Matrix k = rows_of(problem.k, theirs, offsets, 5), v = rows_of(problem.v, theirs, offsets, 6);
        call(other, args, k, v);
      };
      for (int64_t step = 0; step < kRanks; ++step)
        with_keys_of(step, [&](size_t, const AttentionArgs& args, const Matrix& k, const Matrix& v) {
          attention_forward({team, scratch}, args, q.view(), k.view(), v.view(), out.view(), lse.view());
        });
      expect_close(out, expected_out, near(expected_out), "out");
      expect_close(lse, expected_lse, near(expected_lse), "lse");
      for (int64_t step = 0; step < kRanks; ++step)
        with_keys_of(step, [&](size_t other, AttentionArgs args, const Matrix& k, const Matrix& v) {
          args.write = Write::kAdd;
          attention_backward({team, scratch}, args, q.view(), k.view(), v.view(), out.view(), lse.view(), dout.view(),
                             dq.view(), dk[other].view(), dv[other].view());
        });
      const Matrix expected_dq = rows_of(expected.dq, own, offsets, 1);
      expect_close(dq, expected_dq, near(expected_dq), "dq");
    }
    for (size_t rank = 0; rank < kRanks; ++rank) {
      const Matrix expected_dk = rows_of(expected.dk, pieces[rank], offsets, 1);
      const Matrix expected_dv = rows_of(expected.dv, pieces[rank], offsets, 1);
      expect_close(dk[rank], expected_dk, near(expected_dk), "dk");
      expect_close(dv[rank], expected_dv, near(expected_dv), "dv");
    }
  }
}

TEST(Attention, NoRowsAndNoSequences) {
  check({2, 1, 8, {0}, {0}});
  check({2, 1, 8, {0, 0, 0}, {0, 0, 0}});
}

TEST(Attention, GradientsOfTheReferenceAreDifferences) {
  for (const float dropout : {0.0f, 0.25f}) {
    const Case c{2, 1, 3, {0, 3, 5}, {0, 4, 6}, DType::kF32, dropout};
    Problem problem(c);
    const Gradients gradients = problem.reference(problem.dout);
    const auto loss = [&] {
      Matrix out = problem.like_q(0), lse = problem.lse;
      Team team(1);
      ref::attention_forward({team, {}}, problem.args(), problem.q.view(), problem.k.view(), problem.v.view(),
                             out.view(), lse.view());
      double sum = 0;
      for (int64_t row = 0; row < out.rows(); ++row)
        for (int64_t col = 0; col < out.cols(); ++col) sum += out.at(row, col) * problem.dout.at(row, col);
      return sum;
    };
    // Central differences: third derivatives of order 10 give 10 step^2 / 6, the f32 storage of some 30 results of
    // order 1 gives 30 u / step; and so for the f32 out and lse that the gradients use.
    constexpr double kStep = 0x1p-7, kPermitted = 10 * kStep * kStep / 6 + 30 * 0x1p-24 / kStep;
    const auto compare = [&](Matrix& matrix, const Matrix& gradient) {
      for (int64_t row = 0; row < matrix.rows(); ++row)
        for (int64_t col = 0; col < matrix.cols(); ++col) {
          const double value = matrix.at(row, col);
          ref::write_element(matrix.view(), row, col, value + kStep);
          const double above = loss();
          ref::write_element(matrix.view(), row, col, value - kStep);
          EXPECT_NEAR(gradient.at(row, col), (above - loss()) / (2 * kStep), kPermitted);
          ref::write_element(matrix.view(), row, col, value);
        }
    };
    compare(problem.q, gradients.dq);
    compare(problem.k, gradients.dk);
    compare(problem.v, gradients.dv);
  }
}

TEST(AttentionDeathTest, MisuseIsABug) {
  const Case good{4, 2, 8, {0, 3}, {0, 3}};
  const auto with = [&](auto change, auto change_args) {
    Case c = good;
    change(c);
    const Problem problem(good);
    Team team(1);
    std::vector<std::byte> scratch(problem.scratch_bytes(1));
    AttentionArgs args{c.heads, c.kv_heads, c.head_dim, c.q_offsets, c.kv_offsets, {c.dropout, 1, {}}};
    change_args(args);
    Matrix out = problem.out, lse = problem.lse;
    attention_forward({team, scratch}, args, problem.q.view(), problem.k.view(), problem.v.view(), out.view(),
                      lse.view());
  };
  const auto same = [](AttentionArgs&) {};
  EXPECT_DEATH(with([](Case& c) { c.kv_heads = 3; }, same), "4 heads share 3 kv heads");
  EXPECT_DEATH(with([](Case& c) { c.head_dim = 4; }, same), "columns for 4 and 2 heads of 4");
  EXPECT_DEATH(with([](Case& c) { c.q_offsets = {0, 1, 3}; }, same), "3 and 2 offsets");
  EXPECT_DEATH(with([](Case& c) { c.q_offsets = {0, 2}; }, same), "q offsets 0 to 2 for 3 rows");
  EXPECT_DEATH(with([](Case& c) { c.kv_offsets = {0, 4}; }, same), "kv offsets 0 to 4 for 3 and 3 rows");
  EXPECT_DEATH(with(
                   [](Case& c) {
                     c.q_offsets = {0, 2, 3}, c.kv_offsets = {0, 1, 3};
                   },
                   same),
               "sequence 0 has 2 queries, 1 keys");
  EXPECT_DEATH(with([](Case& c) { c.dropout = 0.5f; }, same), "dropout has 0 tokens for 3 rows");
  EXPECT_DEATH(with([](Case&) {}, [](AttentionArgs& args) { args.q_offsets = {}; }), "0 and 2 offsets");
  EXPECT_DEATH(with([](Case&) {}, [](AttentionArgs& args) { args.pieces = 2; }), "0 and 0 positions of 1 pieces");
  const std::vector<int32_t> positions = {0};
  EXPECT_DEATH(with([](Case&) {}, [&](AttentionArgs& args) { args.q_positions = positions; }),
               "1 and 0 positions of 1 pieces, sequences of 1");
}

}  // namespace
}  // namespace strata::kernels

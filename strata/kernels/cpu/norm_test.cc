// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "strata/kernels/cpu/testing_targets.h"
#include "strata/kernels/ref/elementwise.h"

namespace strata::kernels {
namespace {

constexpr float kEps = 1e-5f;

struct Problem {
  Problem(NormKind kind, DType dtype, int64_t tokens, int64_t hidden)
      : kind(kind),
        dtype(dtype),
        x(dtype, tokens, hidden, 1, 3),
        weight(dtype, 1, hidden, 2),
        bias_memory(dtype, 1, hidden, 3),
        dy(dtype, tokens, hidden, 4, 5),
        residual(dtype, tokens, hidden, 5, 1),
        stats(DType::kF32, tokens, 2, 0) {
    Team team(1);
    const Matrix y(DType::kF32, tokens, hidden, 0);
    ref::norm_forward({team, {}}, kind, kEps, x.view(), weight.view(), bias(), y.view(), stats.view());
  }

  TensorView bias() const { return kind == NormKind::kLayerNorm ? bias_memory.view() : TensorView(); }

  // Sums of `cols` terms of order one in at least four parts: each addition may lose a unit of roundoff, and the mean
  // and variance enter every element a few times. rstd magnifies what is left of x - mean.
  double bound(int64_t row) const {
    return (static_cast<double>(x.cols()) / 4 + 32) * 0x1p-24 * 8 * std::max(1.0, stats.at(row, 1));
  }

  NormKind kind;
  DType dtype;
  Matrix x, weight, bias_memory, dy, residual, stats;
};

template <typename Body>
void for_each_problem(Body body) {
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm})
    for (const DType dtype : kTestStorage)
      for (const auto& [tokens, hidden] : kTestShapes) {
        SCOPED_TRACE(fmt::format("{} {} {} x {}", kind == NormKind::kLayerNorm ? "layer" : "rms", dtype_name(dtype),
                                 tokens, hidden));
        body(Problem(kind, dtype, tokens, hidden));
      }
}

TEST(Norm, ForwardIsTheReference) {
  Team team(1);
  for_each_target([&] {
    for_each_problem([&](const Problem& p) {
      const auto [y, stats] = on_any_team([&](const Context& context) {
        const Matrix y(p.dtype, p.x.rows(), p.x.cols(), 0, 2), stats(DType::kF32, p.x.rows(), 2, 0);
        norm_forward(context, p.kind, kEps, p.x.view(), p.weight.view(), p.bias(), y.view(), stats.view());
        return std::pair(y, stats);
      });
      const Matrix expected(DType::kF32, p.x.rows(), p.x.cols(), 0), expected_stats(DType::kF32, p.x.rows(), 2, 0);
      ref::norm_forward({team, {}}, p.kind, kEps, p.x.view(), p.weight.view(), p.bias(), expected.view(),
                        expected_stats.view());
      expect_close(
          stats, expected_stats, [&](int64_t row, int64_t) { return p.bound(row); }, "stats");
      expect_close(
          y, expected,
          [&](int64_t row, int64_t col) { return p.bound(row) + storage_bound(p.dtype, expected.at(row, col)); }, "y");

      const Matrix again(p.dtype, p.x.rows(), p.x.cols(), 0, 2);
      norm_apply({team, {}}, p.kind, p.x.view(), p.weight.view(), p.bias(), stats.view(), again.view());
      EXPECT_TRUE(again == y) << "apply";
    });
  });
}

TEST(Norm, BackwardInputIsTheReference) {
  Team team(1);
  for_each_target([&] {
    for_each_problem([&](const Problem& p) {
      for (const TensorView& residual : {TensorView(), p.residual.view()}) {
        const Matrix dx = on_any_team([&](const Context& context) {
          const Matrix dx(p.dtype, p.x.rows(), p.x.cols(), 0, 2);
          norm_backward_input(context, p.kind, p.dy.view(), p.x.view(), p.weight.view(), p.stats.view(), residual,
                              dx.view());
          return dx;
        });
        const Matrix expected(DType::kF32, p.x.rows(), p.x.cols(), 0);
        ref::norm_backward_input({team, {}}, p.kind, p.dy.view(), p.x.view(), p.weight.view(), p.stats.view(), residual,
                                 expected.view());
        expect_close(dx, expected, [&](int64_t row, int64_t col) {
          return p.bound(row) * std::max(1.0, p.stats.at(row, 1)) + storage_bound(p.dtype, expected.at(row, col));
        });
      }
      const Matrix in_place = p.residual, apart(p.dtype, p.x.rows(), p.x.cols(), 0, 1);
      norm_backward_input({team, {}}, p.kind, p.dy.view(), p.x.view(), p.weight.view(), p.stats.view(), in_place.view(),
                          in_place.view());
      norm_backward_input({team, {}}, p.kind, p.dy.view(), p.x.view(), p.weight.view(), p.stats.view(),
                          p.residual.view(), apart.view());
      expect_close(
          in_place, apart, [](int64_t, int64_t) { return 0.0; }, "over the residual");
    });
  });
}

TEST(Norm, BackwardWeightIsTheReferenceForAnyTeam) {
  Team team(1);
  for_each_target([&] {
    for_each_problem([&](const Problem& p) {
      for (const Write write : {Write::kSet, Write::kAdd}) {
        const bool has_bias = p.kind == NormKind::kLayerNorm;
        const Matrix start_weight(DType::kF32, 1, p.x.cols(), 8), start_bias(DType::kF32, 1, p.x.cols(), 9);
        const auto [dweight, dbias] = on_any_team([&](const Context& context) {
          const Matrix dweight = start_weight, dbias = start_bias;
          norm_backward_weight(context, p.kind, p.dy.view(), p.x.view(), p.stats.view(), dweight.view(),
                               has_bias ? dbias.view() : TensorView(), write);
          return std::pair(dweight, dbias);
        });
        const Matrix expected = start_weight, expected_bias = start_bias;
        ref::norm_backward_weight({team, {}}, p.kind, p.dy.view(), p.x.view(), p.stats.view(), expected.view(),
                                  has_bias ? expected_bias.view() : TensorView(), write);
        // At most 24 tokens of order one to four are added, each with a unit of roundoff on a sum below 64.
        const auto bound = [](int64_t, int64_t) { return 32 * 0x1p-24 * 64; };
        expect_close(dweight, expected, bound, "dweight");
        expect_close(dbias, expected_bias, bound, "dbias");
      }
    });
  });
}

TEST(Norm, SplitsManyTokensOverChannels) {
  const Problem p(NormKind::kLayerNorm, DType::kF32, 300, 200);
  const auto [dweight, dbias] = on_any_team([&](const Context& context) {
    const Matrix dweight(DType::kF32, 1, 200, 0), dbias(DType::kF32, 1, 200, 0);
    norm_backward_weight(context, p.kind, p.dy.view(), p.x.view(), p.stats.view(), dweight.view(), dbias.view(),
                         Write::kSet);
    return std::pair(dweight, dbias);
  });
  double sum = 0;
  for (int64_t row = 0; row < 300; ++row) sum += p.dy.at(row, 137);
  EXPECT_NEAR(dbias.at(0, 137), sum, 300 * 0x1p-24 * 64);
}

TEST(Norm, ReferenceGradientsAreFiniteDifferences) {
  Team team(1);
  const Context context = {team, {}};
  for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
    const Problem p(kind, DType::kF32, 3, 7);
    const Matrix y(DType::kF32, 3, 7, 0), stats(DType::kF32, 3, 2, 0), dx(DType::kF32, 3, 7, 0),
        dweight(DType::kF32, 1, 7, 0), dbias(DType::kF32, 1, 7, 0);
    const auto loss = [&] {
      ref::norm_forward(context, kind, kEps, p.x.view(), p.weight.view(), p.bias(), y.view(), stats.view());
      return dot(y, p.dy) + dot(p.x, p.residual);
    };
    ref::norm_backward_input(context, kind, p.dy.view(), p.x.view(), p.weight.view(), p.stats.view(), p.residual.view(),
                             dx.view());
    ref::norm_backward_weight(context, kind, p.dy.view(), p.x.view(), p.stats.view(), dweight.view(), dbias.view(),
                              Write::kSet);
    expect_gradient(p.x, dx, loss, 5e-3);
    expect_gradient(p.weight, dweight, loss, 1e-4);
    if (kind == NormKind::kLayerNorm) expect_gradient(p.bias_memory, dbias, loss, 1e-4);
  }
}

TEST(NormDeathTest, RefusesShapesThatDoNotMatch) {
  Team team(1);
  const Problem p(NormKind::kLayerNorm, DType::kF32, 3, 7);
  const Matrix y(DType::kF32, 3, 8, 0);
  EXPECT_DEATH(norm_forward({team, {}}, p.kind, kEps, p.x.view(), p.weight.view(), p.bias(), y.view(), p.stats.view()),
               "norm y is \\(3, 8\\) f32, want \\(3, 7\\) f32");
}

}  // namespace
}  // namespace strata::kernels

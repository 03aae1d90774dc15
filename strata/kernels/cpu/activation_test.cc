// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "strata/kernels/cpu/testing_targets.h"
#include "strata/kernels/ref/elementwise.h"

namespace strata::kernels {
namespace {

constexpr ActivationKind kKinds[] = {ActivationKind::kGeluTanh, ActivationKind::kGeluExact, ActivationKind::kSwiglu};

int64_t width(ActivationKind kind, int64_t ffn) { return kind == ActivationKind::kSwiglu ? 2 * ffn : ffn; }

template <typename Body>
void for_each_case(Body body) {
  for (const ActivationKind kind : kKinds)
    for (const DType dtype : kTestStorage)
      for (const auto& [tokens, ffn] : kTestShapes) {
        SCOPED_TRACE(fmt::format("kind {} {} {} x {}", static_cast<int>(kind), dtype_name(dtype), tokens, ffn));
        body(kind, dtype, tokens, ffn);
      }
}

TEST(Activation, ForwardIsTheReference) {
  Team team(1);
  for_each_target([&] {
    for_each_case([&](ActivationKind kind, DType dtype, int64_t tokens, int64_t ffn) {
      const Matrix pre(dtype, tokens, width(kind, ffn), 1, 3), expected(DType::kF32, tokens, ffn, 0);
      const Matrix act = on_any_team([&](const Context& context) {
        const Matrix act(dtype, tokens, ffn, 0, 2);
        activation_forward(context, kind, pre.view(), act.view());
        return act;
      });
      ref::activation_forward({team, {}}, kind, pre.view(), expected.view());
      // As in the dense test below, with |exponent| < 16 for normal numbers.
      expect_close(act, expected, [&](int64_t row, int64_t col) {
        return 3e-6 * std::abs(expected.at(row, col)) + storage_bound(dtype, expected.at(row, col));
      });
    });
  });
}

TEST(Activation, BackwardIsTheReference) {
  Team team(1);
  for_each_target([&] {
    for_each_case([&](ActivationKind kind, DType dtype, int64_t tokens, int64_t ffn) {
      const Matrix pre(dtype, tokens, width(kind, ffn), 1, 3), dact(dtype, tokens, ffn, 2);
      const Matrix expected(DType::kF32, tokens, width(kind, ffn), 0);
      const Matrix dpre = on_any_team([&](const Context& context) {
        const Matrix dpre(dtype, tokens, width(kind, ffn), 0, 2);
        activation_backward(context, kind, dact.view(), pre.view(), dpre.view());
        return dpre;
      });
      ref::activation_backward({team, {}}, kind, dact.view(), pre.view(), expected.view());
      // Slopes are sums of terms below 2 that may cancel: ten units of roundoff of those terms times dact and up (below
      // 25).
      expect_close(dpre, expected, [&](int64_t row, int64_t col) {
        return 20 * 0x1p-24 * 25 + storage_bound(dtype, expected.at(row, col));
      });
    });
  });
}

// One row of every 1/64 in [-30, 30], the other half (SwiGLU's up) ones.
Matrix dense_row(ActivationKind kind) {
  constexpr int64_t kCount = 60 * 64 + 1;
  const Matrix pre(DType::kF32, 1, width(kind, kCount), 0);
  for (int64_t i = 0; i < kCount; ++i) ref::write_element(pre.view(), 0, i, -30.0 + static_cast<double>(i) / 64);
  for (int64_t i = kCount; i < pre.cols(); ++i) ref::write_element(pre.view(), 0, i, 1.0);
  return pre;
}

TEST(Activation, RelativeErrorIsSmallFarIntoTheTails) {
  Team team(1);
  for_each_target([&] {
    for (const ActivationKind kind : kKinds) {
      SCOPED_TRACE(static_cast<int>(kind));
      const Matrix pre = dense_row(kind);
      const int64_t count = kind == ActivationKind::kSwiglu ? pre.cols() / 2 : pre.cols();
      const Matrix act(DType::kF32, 1, count, 0), expected(DType::kF32, 1, count, 0);
      activation_forward({team, {}}, kind, pre.view(), act.view());
      ref::activation_forward({team, {}}, kind, pre.view(), expected.view());
      // The tanh form rounds its exponent z = 2u twice before exp makes an absolute error relative: |z| 2^-23.
      // Below the smallest normal exponential everything is flushed to about that size times |x|.
      expect_close(act, expected, [&](int64_t, int64_t i) {
        const double x = pre.at(0, i),
                     z = kind == ActivationKind::kGeluTanh ? 1.6 * std::abs(x + 0.0448 * x * x * x) : 0.0;
        return (1e-6 + z * 0x1p-23) * std::abs(expected.at(0, i)) + 1e-36;
      });
    }
  });
}

TEST(Activation, NonFiniteInputIsSeen) {
  Team team(1);
  for_each_target([&] {
    for (const ActivationKind kind : kKinds)
      for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
        for (const int64_t ffn : {1, 33}) {
          const Matrix pre(DType::kF32, 1, width(kind, ffn), 1), act(DType::kF32, 1, ffn, 0);
          ref::write_element(pre.view(), 0, ffn - 1, bad);
          activation_forward({team, {}}, kind, pre.view(), act.view());
          EXPECT_FALSE(std::isfinite(act.at(0, ffn - 1))) << static_cast<int>(kind) << " of " << bad;
        }
  });
}

TEST(Activation, ReferenceGradientIsFiniteDifferences) {
  Team team(1);
  const Context context = {team, {}};
  for (const ActivationKind kind : kKinds) {
    const Matrix pre(DType::kF32, 3, width(kind, 7), 1), weights(DType::kF32, 3, 7, 2), act(DType::kF32, 3, 7, 0);
    const Matrix dpre(DType::kF32, 3, width(kind, 7), 0);
    ref::activation_backward(context, kind, weights.view(), pre.view(), dpre.view());
    expect_gradient(
        pre, dpre,
        [&] {
          ref::activation_forward(context, kind, pre.view(), act.view());
          return dot(act, weights);
        },
        5e-4);
  }
}

TEST(ActivationDeathTest, RefusesShapesThatDoNotMatch) {
  Team team(1);
  const Matrix pre(DType::kF32, 3, 8, 1), act(DType::kF32, 3, 8, 0), integers(DType::kF32, 3, 8, 0);
  EXPECT_DEATH(activation_forward({team, {}}, ActivationKind::kSwiglu, pre.view(), act.view()), "want \\(3, 16\\) f32");
  const TensorView words(integers.view().data, DType::kI32, 3, 8);
  EXPECT_DEATH(activation_forward({team, {}}, ActivationKind::kGeluTanh, words, words),
               "activation holds i32, want f32 or bf16");
}

}  // namespace
}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "strata/kernels/cpu/testing_targets.h"
#include "strata/kernels/ref/elementwise.h"

namespace strata::kernels {
namespace {

constexpr int64_t kSizes[] = {1, 7, 8, 33, 1023, 1025, 20001};

TEST(SumOfSquares, IsTheReferenceForAnyTeam) {
  Team team(1);
  for_each_target([&] {
    for (const int64_t size : {0, 1, 7, 8, 1023, 1025, 300001}) {
      const Matrix x(DType::kF32, 1, size, 1);
      const double sum = on_any_team([&](const Context& context) { return sum_of_squares(context, x.view()); });
      const double expected = ref::sum_of_squares({team, {}}, x.view());
      EXPECT_NEAR(sum, expected, static_cast<double>(size) * 0x1p-53 * expected)
          << size;  // squares of f32 are exact in double
    }
  });
}

TEST(SumOfSquares, BlocksCoverWhatExceedsTheirNumber) {
  Team team(2);
  constexpr int64_t kSize = 256 * 4096 + 5;
  const std::vector<float> ones(kSize, 1.0f);
  EXPECT_EQ(sum_of_squares({team, {}}, {const_cast<float*>(ones.data()), DType::kF32, 1, kSize}),
            static_cast<double>(kSize));
}

TEST(SumOfSquares, LargeIsFiniteAndNonFiniteIsSeen) {
  Team team(1);
  for (const int64_t place : {0, 16, 32}) {
    const Matrix x(DType::kF32, 1, 33, 1);
    ref::write_element(x.view(), 0, place, 1e30);
    EXPECT_NEAR(sum_of_squares({team, {}}, x.view()), 1e60, 1e54);
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
      ref::write_element(x.view(), 0, place, bad);
      EXPECT_FALSE(std::isfinite(sum_of_squares({team, {}}, x.view())));
    }
  }
}

// The states of one optimizer in f32, and the same in double for the plain loop.
struct States {
  States(DType dtype, int64_t size)
      : master(DType::kF32, 1, size, 1),
        first(DType::kF32, 1, size, 0),
        second(DType::kF32, 1, size, 0),
        rounded(dtype, 1, size, 0) {
    for (int64_t i = 0; i < size; ++i) {
      ref::write_element(first.view(), 0, i, 0);
      ref::write_element(second.view(), 0, i, 0);
    }
  }
  TensorView weight() const { return rounded.view().dtype == DType::kBF16 ? rounded.view() : master.view(); }
  bool operator==(const States&) const = default;

  Matrix master, first, second, rounded;
};

constexpr int kSteps = 10;

// The gradients of ten steps, and the states a scalar loop in double reaches with them.
struct DoubleRun {
  explicit DoubleRun(int64_t size) : size(size), w(size), m(size), v(size) {
    for (uint64_t step = 1; step <= kSteps; ++step) gradients.emplace_back(DType::kF32, 1, size, step + 100);
    const Matrix start(DType::kF32, 1, size, 1);
    for (int64_t i = 0; i < size; ++i) w[i] = start.at(0, i);
  }

  void adamw(const AdamWArgs& args) {
    const double lr = args.lr, beta1 = args.beta1, beta2 = args.beta2, eps = args.eps, decay = args.decay;
    for (int step = 1; step <= kSteps; ++step)
      for (int64_t i = 0; i < size; ++i) {
        const double g = gradients[step - 1].at(0, i) * args.gradient_scale;
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        const double deviation = std::sqrt(v[i] / (1 - std::pow(beta2, step))) + eps;
        w[i] = w[i] * (1 - lr * decay) - lr * (m[i] / (1 - std::pow(beta1, step))) / deviation;
      }
  }

  void sgd(const SgdArgs& args) {
    const double lr = args.lr, decay = args.decay;
    for (int step = 1; step <= kSteps; ++step)
      for (int64_t i = 0; i < size; ++i) {
        m[i] = args.momentum * m[i] + gradients[step - 1].at(0, i) * args.gradient_scale;
        w[i] -= lr * (m[i] + decay * w[i]);
      }
  }

  // Ten roundings of a value that may pass through zero on its way: relative to the weight or to the ten steps' lr.
  void expect_weights(const States& actual, double lr) const {
    for (int64_t i = 0; i < size; ++i) {
      const auto master = static_cast<float>(actual.master.at(0, i));
      ASSERT_NEAR(master, w[i], 1e-6 * std::max(std::abs(w[i]), kSteps * lr)) << i << " of " << size;
      if (actual.weight().dtype == DType::kBF16) {
        ASSERT_EQ(actual.rounded.at(0, i), to_float(to_bf16(master)));
      }
    }
  }

  int64_t size;
  std::vector<Matrix> gradients;
  std::vector<double> w, m, v;
};

// B18: AdamW over ten steps, both with and without decay, sizes off the vector width.
TEST(AdamW, TenStepsOfAScalarDoubleLoop) {
  for (const float decay : {0.0f, 0.1f})
    for (const int64_t size : kSizes) {
      AdamWArgs args = {
          .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = decay, .gradient_scale = 0.5f, .step = 1};
      DoubleRun expected(size);
      expected.adamw(args);
      for_each_target([&] {
        for (const DType dtype : kTestStorage) {
          const States actual = on_any_team([&](const Context& context) {
            const States s(dtype, size);
            for (args.step = 1; args.step <= kSteps; ++args.step)
              adamw(context, args, expected.gradients[args.step - 1].view(), s.master.view(), s.first.view(),
                    s.second.view(), s.weight());
            return s;
          });
          expected.expect_weights(actual, args.lr);
          for (int64_t i = 0; i < size; ++i) {
            ASSERT_NEAR(actual.first.at(0, i), expected.m[i], 1e-6);  // ten roundings of values below 2
            ASSERT_NEAR(actual.second.at(0, i), expected.v[i], 1e-6 * expected.v[i] + 1e-12);
          }
        }
      });
    }
}

TEST(AdamW, ReferenceIsTheFormula) {
  Team team(1);
  const States s(DType::kF32, 1);
  const Matrix gradient(DType::kF32, 1, 1, 3);
  const double w = s.master.at(0, 0), g = gradient.at(0, 0);
  ref::adamw(
      {team, {}},
      {.lr = 0.5f, .beta1 = 0.5f, .beta2 = 0.75f, .eps = 1.0f, .decay = 0.25f, .gradient_scale = 2.0f, .step = 1},
      gradient.view(), s.master.view(), s.first.view(), s.second.view(), s.weight());
  // At step 1 the corrected moments are g and g^2.
  EXPECT_NEAR(s.master.at(0, 0), w * 0.875 - 0.5 * (2 * g) / (std::abs(2 * g) + 1.0), 1e-7);
  EXPECT_EQ(s.first.at(0, 0), static_cast<float>(g));
}

// B20: with gradients zeroed only decay moves weights.
TEST(Decay, ShrinksOnlyWhereItIsPositive) {
  Team team(1);
  const Matrix zero(DType::kF32, 1, 33, 0);
  for (int64_t i = 0; i < 33; ++i) ref::write_element(zero.view(), 0, i, 0);
  for_each_target([&] {
    for (const float decay : {0.0f, 0.1f}) {
      const States a(DType::kF32, 33), b(DType::kF32, 33);
      const Matrix start = a.master;
      adamw({team, {}}, {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = decay}, zero.view(),
            a.master.view(), a.first.view(), a.second.view(), a.weight());
      sgd({team, {}}, {.lr = 0.01f, .momentum = 0.9f, .decay = decay}, zero.view(), b.master.view(), b.first.view(),
          b.weight());
      for (const Matrix& moved : {a.master, b.master})
        expect_close(moved, start,
                     [&](int64_t, int64_t i) { return decay == 0.0f ? 0.0 : 0.0011 * std::abs(start.at(0, i)); });
      for (int64_t i = 0; i < 33 && decay > 0; ++i) {
        EXPECT_NEAR(a.master.at(0, i), start.at(0, i) * (1 - 0.001), 0x1p-23 * std::abs(start.at(0, i)));
        EXPECT_NEAR(b.master.at(0, i), start.at(0, i) * (1 - 0.001), 0x1p-23 * std::abs(start.at(0, i)));
      }
    }
  });
}

TEST(Sgd, TenStepsOfAScalarDoubleLoop) {
  for (const float momentum : {0.0f, 0.9f})
    for (const int64_t size : kSizes) {
      const SgdArgs args = {.lr = 1e-2f, .momentum = momentum, .decay = 0.1f, .gradient_scale = 0.5f};
      DoubleRun expected(size);
      expected.sgd(args);
      for_each_target([&] {
        for (const DType dtype : kTestStorage) {
          const States actual = on_any_team([&](const Context& context) {
            const States s(dtype, size);
            for (const Matrix& gradient : expected.gradients)
              sgd(context, args, gradient.view(), s.master.view(), momentum == 0.0f ? TensorView() : s.first.view(),
                  s.weight());
            return s;
          });
          expected.expect_weights(actual, args.lr);
        }
      });
    }
}

TEST(Sgd, ReferenceIsTheFormula) {
  Team team(1);
  const States s(DType::kF32, 1);
  const Matrix gradient(DType::kF32, 1, 1, 3);
  const double w = s.master.at(0, 0), g = gradient.at(0, 0);
  ref::write_element(s.first.view(), 0, 0, 3.0);
  ref::sgd({team, {}}, {.lr = 0.5f, .momentum = 0.5f, .decay = 0.25f, .gradient_scale = 2.0f}, gradient.view(),
           s.master.view(), s.first.view(), s.weight());
  EXPECT_NEAR(s.first.at(0, 0), 1.5 + 2 * g, 1e-6);
  EXPECT_NEAR(s.master.at(0, 0), w - 0.5 * (1.5 + 2 * g + 0.25 * w), 1e-6);
}

TEST(ParametersDeathTest, RefusesWhatCannotBe) {
  Team team(1);
  const States s(DType::kF32, 4);
  const Matrix other(DType::kF32, 1, 4, 1), strided(DType::kF32, 2, 2, 1, 1);
  const auto step = [&](int64_t number, const TensorView& gradient, const TensorView& weight) {
    adamw({team, {}}, {.lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .step = number}, gradient,
          s.master.view(), s.first.view(), s.second.view(), weight);
  };
  EXPECT_DEATH(step(0, other.view(), s.weight()), "step 0");
  EXPECT_DEATH(step(1, strided.view(), s.weight()), "gradient is \\(2, 2\\)");
  EXPECT_DEATH(step(1, other.view(), other.view()), "an f32 weight must be the master itself");
  EXPECT_DEATH(sum_of_squares({team, {}}, strided.view()), "vector has stride 3 for 2 columns");
  EXPECT_DEATH(sgd({team, {}}, {.lr = 1e-2f, .momentum = 0.9f}, other.view(), s.master.view(), {}, s.weight()),
               "momentum 0.9 without a buffer");
}

}  // namespace
}  // namespace strata::kernels

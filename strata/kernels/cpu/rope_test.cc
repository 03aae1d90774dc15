// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "strata/kernels/cpu/testing_targets.h"
#include "strata/kernels/ref/elementwise.h"

namespace strata::kernels {
namespace {

std::vector<int32_t> positions_for(int64_t tokens) {
  const std::vector<int32_t> special = {0, 1, 2, 1023, 131071, 2000000000};
  std::vector<int32_t> positions(tokens);
  for (int64_t i = 0; i < tokens; ++i)
    positions[i] = special[i % static_cast<int64_t>(special.size())] + static_cast<int32_t>(i);
  return positions;
}

constexpr RopeArgs kCases[] = {{1, 1, 2, 10000.0f, 1},
                               {3, 1, 14, 10000.0f, 1},
                               {4, 2, 64, 500000.0f, -1},
                               {2, 2, 66, 10000.0f, 1},
                               {1, 1, 512, 1e6f, 1}};

TEST(Rope, IsTheReference) {
  Team team(1);
  for_each_target([&] {
    for (const RopeArgs& args : kCases)
      for (const DType dtype : kTestStorage)
        for (const int64_t tokens : {0, 1, 40}) {
          SCOPED_TRACE(
              fmt::format("{} heads of {} {} {} tokens", args.heads, args.head_dim, dtype_name(dtype), tokens));
          const std::vector<int32_t> positions = positions_for(tokens);
          const Matrix start(dtype, tokens, (args.heads + 2 * args.kv_heads) * args.head_dim, 1, 3),
              expected = widened(start);
          const Matrix qkv = on_any_team([&](const Context& context) {
            const Matrix qkv = start;
            rope(context, args, positions, qkv.view());
            return qkv;
          });
          ref::rope({team, {}}, args, positions, expected.view());
          // Two products and a sum of values below 6, sine and cosine within 2^-23; at position 2e9 the
          // exponentiation's 2^-53 is an angle of 2e9 * 2^-52.
          expect_close(qkv, expected, [&](int64_t row, int64_t col) {
            return 6 * 6 * 0x1p-23 + storage_bound(dtype, expected.at(row, col));
          });
        }
  });
}

TEST(Rope, TurnsBackExactly) {
  Team team(1);
  RopeArgs args = {4, 2, 64, 10000.0f, 1};
  const std::vector<int32_t> positions = positions_for(12);
  const Matrix start(DType::kF32, 12, 512, 1), qkv = start;
  rope({team, {}}, args, positions, qkv.view());
  EXPECT_FALSE(qkv == start);
  args.direction = -1;
  rope({team, {}}, args, positions, qkv.view());
  expect_close(qkv, start, [](int64_t, int64_t) { return 6 * 8 * 0x1p-23; });  // twice the bound above
}

TEST(Rope, ReferenceBackwardIsFiniteDifferences) {
  Team team(1);
  RopeArgs args = {2, 1, 4, 10000.0f, 1};
  const std::vector<int32_t> positions = {3, 5};
  const Matrix qkv(DType::kF32, 2, 16, 1), weights(DType::kF32, 2, 16, 2), gradient = weights;
  const auto loss = [&] {
    const Matrix turned = qkv;
    ref::rope({team, {}}, {2, 1, 4, 10000.0f, 1}, positions, turned.view());
    return dot(turned, weights);
  };
  args.direction = -1;
  ref::rope({team, {}}, args, positions, gradient.view());
  expect_gradient(qkv, gradient, loss, 1e-4);  // linear: only the rounding of the outputs
}

TEST(RopeDeathTest, RefusesWhatCannotBe) {
  Team team(1);
  const Matrix qkv(DType::kF32, 2, 12, 1), wide(DType::kF32, 2, 3 * 514, 1);
  const std::vector<int32_t> positions = {0, 1};
  EXPECT_DEATH(rope({team, {}}, {2, 1, 4, 1e4f, 1}, positions, qkv.view()), "want \\(2, 16\\)");
  EXPECT_DEATH(rope({team, {}}, {2, 1, 3, 1e4f, 1}, positions, qkv.view()), "head_dim 3 must be even");
  EXPECT_DEATH(rope({team, {}}, {1, 1, 514, 1e4f, 1}, positions, wide.view()),
               "head_dim 514 must be even and at most 512");
  EXPECT_DEATH(rope({team, {}}, {1, 1, 4, 0.5f, 1}, positions, qkv.view()), "theta 0.5");
  EXPECT_DEATH(rope({team, {}}, {1, 1, 4, 1e4f, 1}, {}, qkv.view()), "0 positions for 2 tokens");
}

}  // namespace
}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "strata/kernels/cpu/testing_targets.h"
#include "strata/kernels/ref/elementwise.h"

namespace strata::kernels {
namespace {

TEST(Convert, EqualsTheReferenceBitForBit) {
  Team team(1);
  for_each_target([&] {
    for (const DType from : kTestStorage)
      for (const DType to : kTestStorage)
        for (const int64_t gap : {0, 3})
          for (const auto& [rows, cols] : kTestShapes) {
            SCOPED_TRACE(fmt::format("{} to {} {} x {} gap {}", dtype_name(from), dtype_name(to), rows, cols, gap));
            const Matrix source(from, rows, cols, 1, gap), expected(to, rows, cols, 0, gap);
            const Matrix result = on_any_team([&](const Context& context) {
              const Matrix result(to, rows, cols, 0, gap);
              convert(context, source.view(), result.view());
              return result;
            });
            ref::convert({team, {}}, source.view(), expected.view());
            EXPECT_TRUE(result == expected);
          }
  });
}

TEST(Convert, RoundsSpecialValuesLikeToBf16) {
  Team team(1);
  const float values[] = {0.0f,
                          -0.0f,
                          1.0f + 0x1p-8f,
                          1.0f + 0x3p-8f,
                          1.0f + 0x1.8p-8f,
                          std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::denorm_min(),
                          -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::signaling_NaN(),
                          0x1p-133f};
  constexpr int64_t kCount = 44;  // whole vectors and single elements of every instruction set
  for_each_target([&] {
    std::vector<float> from(kCount), back(kCount);
    std::vector<BF16> to(kCount);
    for (int64_t i = 0; i < kCount; ++i) from[i] = values[i % std::size(values)];
    convert({team, {}}, {from.data(), DType::kF32, 1, kCount}, {to.data(), DType::kBF16, 1, kCount});
    convert({team, {}}, {to.data(), DType::kBF16, 1, kCount}, {back.data(), DType::kF32, 1, kCount});
    for (int64_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(to[i].bits, to_bf16(from[i]).bits) << from[i];
      const float expected = to_float(to[i]);
      EXPECT_EQ(std::memcmp(&back[i], &expected, sizeof(float)), 0) << from[i];
    }
  });
}

TEST(ConvertDeathTest, RefusesShapesThatDoNotMatch) {
  Team team(1);
  const Matrix from(DType::kF32, 2, 4, 1), to(DType::kBF16, 2, 5, 0);
  EXPECT_DEATH(convert({team, {}}, from.view(), to.view()), "convert to is \\(2, 5\\)");
}

}  // namespace
}  // namespace strata::kernels

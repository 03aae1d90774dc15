// SPDX-License-Identifier: Apache-2.0
#include "strata/tensor/f32_values.h"

#include <gtest/gtest.h>

#include <vector>

namespace strata {
namespace {

std::vector<float> read_all(const std::byte* values, DType dtype, int64_t count) {
  std::vector<float> read;
  read_as_f32(values, dtype, count, [&](int64_t first, std::span<const float> piece) {
    EXPECT_EQ(first, static_cast<int64_t>(read.size()));
    read.insert(read.end(), piece.begin(), piece.end());
  });
  return read;
}

// More values than a piece has, and a rest.
TEST(ReadAsF32, GivesAllValuesInOrder) {
  std::vector<float> values;
  std::vector<BF16> rounded;
  for (int index = 0; index < 40'000; ++index) {
    values.push_back(0.001f * static_cast<float>(index));
    rounded.push_back(to_bf16(values.back()));
  }
  EXPECT_EQ(read_all(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, 40'000), values);
  const std::vector<float> widened = read_all(reinterpret_cast<const std::byte*>(rounded.data()), DType::kBF16, 40'000);
  ASSERT_EQ(widened.size(), rounded.size());
  for (size_t index = 0; index < widened.size(); ++index) ASSERT_EQ(widened[index], to_float(rounded[index])) << index;
}

TEST(ReadAsF32DeathTest, RefusesOtherTypes) {
  const int64_t value = 1;
  EXPECT_DEATH(read_all(reinterpret_cast<const std::byte*>(&value), DType::kI64, 1), "i64 is read as f32");
}

}  // namespace
}  // namespace strata

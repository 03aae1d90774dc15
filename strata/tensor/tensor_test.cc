// SPDX-License-Identifier: Apache-2.0
#include "strata/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace strata {
namespace {

TEST(BF16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(1.0f + 1.0f / 256).bits, 0x3f80);  // half way, even below
  EXPECT_EQ(to_bf16(1.0f + 3.0f / 256).bits, 0x3f82);  // half way, even above
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
}

TEST(DTypeName, RoundTripsAndRefusesUnknown) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kI32, DType::kI64, DType::kU16, DType::kU8})
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  EXPECT_THROW(parse_dtype("f17"), Error);
}

TEST(TensorView, SlicesShareMemory) {
  std::vector<float> memory(12);
  for (int i = 0; i < 12; ++i) memory[i] = static_cast<float>(i);
  const TensorView view(memory.data(), DType::kF32, 3, 4);
  const TensorView part = view.slice_rows(1, 2).slice_cols(2, 2);
  EXPECT_EQ(part.row<float>(1)[0], 10.0f);
  EXPECT_FALSE(part.contiguous());
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/tensor/f32_values.h"

#include <algorithm>
#include <array>

namespace strata {
namespace {

constexpr int64_t kPieceElements = 16 << 10;  // 64 KiB on the stack

}  // namespace

void read_as_f32(const std::byte* values, DType dtype, int64_t count, const F32Sink& sink) {
  if (dtype == DType::kF32) return sink(0, {reinterpret_cast<const float*>(values), static_cast<size_t>(count)});
  STRATA_CHECK(dtype == DType::kBF16, "{} is read as f32", dtype_name(dtype));
  const auto* const from = reinterpret_cast<const BF16*>(values);
  std::array<float, kPieceElements> piece;
  for (int64_t first = 0; first < count; first += kPieceElements) {
    const int64_t size = std::min(kPieceElements, count - first);
    std::transform(from + first, from + first + size, piece.begin(), to_float);
    sink(first, {piece.data(), static_cast<size_t>(size)});
  }
}

}  // namespace strata

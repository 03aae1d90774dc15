// SPDX-License-Identifier: Apache-2.0
// Element types and views. A TensorView is a cheap value: it names memory, never owns it.
// Views are two-dimensional, (rows, cols) with a row stride in elements: (tokens, channels) for
// activations, (out, in) for weights, (1, n) for vectors. Larger shapes exist only as parameter metadata.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "strata/base/error.h"

namespace strata {

enum class DType : uint8_t { kF32, kBF16, kF64, kI32, kI64, kU16, kU8 };

constexpr int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16:
    case DType::kU16: return 2;
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kU8: return 1;
  }
  return 0;
}

// "f32", "bf16", ... as written in plans and manifests.
std::string_view dtype_name(DType dtype);
// Throws Error for an unknown name.
DType parse_dtype(std::string_view name);

// bfloat16 as stored: the upper half of an fp32. Conversion rounds to nearest even; NaN stays NaN.
struct BF16 {
  uint16_t bits = 0;
};
float to_float(BF16 value);
BF16 to_bf16(float value);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<BF16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::kU16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};

struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;  // elements from one row to the next, at least cols

  TensorView() = default;
  TensorView(void* memory, DType type, int64_t num_rows, int64_t num_cols, int64_t stride = 0)
      : data(static_cast<std::byte*>(memory)),
        dtype(type),
        rows(num_rows),
        cols(num_cols),
        row_stride(stride == 0 ? num_cols : stride) {}

  bool empty() const { return data == nullptr; }
  int64_t num_elements() const { return rows * cols; }
  bool contiguous() const { return row_stride == cols || rows <= 1; }

  template <typename T>
  T* row(int64_t index) const {
    STRATA_CHECK(dtype == DTypeOf<T>::value, "view holds {}, asked for {}", dtype_name(dtype),
                 dtype_name(DTypeOf<T>::value));
    return reinterpret_cast<T*>(data) + index * row_stride;
  }
  std::byte* row_bytes(int64_t index) const { return data + index * row_stride * dtype_bytes(dtype); }

  TensorView slice_rows(int64_t begin, int64_t count) const {
    return {row_bytes(begin), dtype, count, cols, row_stride};
  }
  TensorView slice_cols(int64_t begin, int64_t count) const {
    return {data + begin * dtype_bytes(dtype), dtype, rows, count, row_stride};
  }
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/hf/hub_tensors.h"

#include <bit>
#include <cstring>

#include "strata/base/error.h"

namespace strata {
namespace {

template <typename T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// IEEE half precision: 1 sign, 5 exponent, 10 mantissa bits. Every value is a float.
float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide_exponent = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | wide_exponent << 23 | mantissa << 13);
}

// Calls body(row, col) in the order in which the hub stores the elements.
template <typename Body>
void for_stored_order(const TensorView& values, bool transposed, Body&& body) {
  if (transposed) {
    for (int64_t col = 0; col < values.cols; ++col)
      for (int64_t row = 0; row < values.rows; ++row) body(row, col);
  } else {
    for (int64_t row = 0; row < values.rows; ++row)
      for (int64_t col = 0; col < values.cols; ++col) body(row, col);
  }
}

template <typename To, typename From, typename Convert>
std::vector<std::byte> encode(const TensorView& values, bool transposed, Convert&& convert) {
  std::vector<std::byte> bytes(static_cast<size_t>(values.num_elements()) * sizeof(To));
  std::byte* next = bytes.data();
  for_stored_order(values, transposed, [&](int64_t row, int64_t col) {
    const To value = convert(values.row<From>(row)[col]);
    std::memcpy(next, &value, sizeof(To));
    next += sizeof(To);
  });
  return bytes;
}

template <typename From, typename Convert>
void decode(std::span<const std::byte> bytes, bool transposed, const TensorView& values, Convert&& convert) {
  const std::byte* next = bytes.data();
  for_stored_order(values, transposed, [&](int64_t row, int64_t col) {
    values.row<float>(row)[col] = convert(load<From>(next));
    next += sizeof(From);
  });
}

std::vector<int64_t> hub_shape(const ParameterDecl& parameter, const HubPart& part) {
  if (!parameter.matrix) return {part.count};
  if (part.transposed) return {parameter.cols, part.count};
  return {part.count, parameter.cols};
}

}  // namespace

std::vector<HubTensor> hub_tensors(const std::vector<LayerDecl>& layers) {
  std::vector<HubTensor> tensors;
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (size_t index = 0; index < layers[layer].parameters.size(); ++index) {
      const ParameterDecl& parameter = layers[layer].parameters[index];
      for (size_t part = 0; part < parameter.hub.size(); ++part)
        tensors.push_back({parameter.hub[part].name, hub_shape(parameter, parameter.hub[part]), static_cast<int>(layer),
                           static_cast<int>(index), static_cast<int>(part)});
    }
  return tensors;
}

TensorView part_of(const TensorView& values, const ParameterDecl& parameter, const HubPart& part) {
  return parameter.matrix ? values.slice_rows(part.begin, part.count) : values.slice_cols(part.begin, part.count);
}

std::vector<std::byte> encode_part(const TensorView& values, bool transposed, DType dtype) {
  const bool from_f32 = values.dtype == DType::kF32;
  const auto same = [](auto value) { return value; };
  if (dtype == DType::kF32) {
    if (from_f32) return encode<float, float>(values, transposed, same);
    return encode<float, BF16>(values, transposed, [](BF16 value) { return to_float(value); });
  }
  STRATA_CHECK(dtype == DType::kBF16, "weights are not written as {}", dtype_name(dtype));
  if (from_f32) return encode<BF16, float>(values, transposed, [](float value) { return to_bf16(value); });
  return encode<BF16, BF16>(values, transposed, same);
}

void decode_part(std::span<const std::byte> bytes, const std::string& stored_dtype, bool transposed,
                 const TensorView& values) {
  STRATA_CHECK(can_decode(stored_dtype), "weights are not read from {}", stored_dtype);
  const int64_t element_bytes = stored_dtype == "F32" ? 4 : 2;
  STRATA_CHECK(static_cast<int64_t>(bytes.size()) == element_bytes * values.num_elements(),
               "{} bytes for {} elements of {}", bytes.size(), values.num_elements(), stored_dtype);
  if (stored_dtype == "F32") return decode<float>(bytes, transposed, values, [](float value) { return value; });
  if (stored_dtype == "BF16")
    return decode<BF16>(bytes, transposed, values, [](BF16 value) { return to_float(value); });
  decode<uint16_t>(bytes, transposed, values, half_to_float);
}

bool can_decode(const std::string& stored_dtype) {
  return stored_dtype == "F32" || stored_dtype == "BF16" || stored_dtype == "F16";
}

}  // namespace strata

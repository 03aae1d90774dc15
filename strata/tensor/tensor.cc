// SPDX-License-Identifier: Apache-2.0
#include "strata/tensor/tensor.h"

#include <array>
#include <bit>

namespace strata {
namespace {

struct Name {
  DType dtype;
  std::string_view name;
};
constexpr std::array<Name, 7> kNames = {{{DType::kF32, "f32"},
                                         {DType::kBF16, "bf16"},
                                         {DType::kF64, "f64"},
                                         {DType::kI32, "i32"},
                                         {DType::kI64, "i64"},
                                         {DType::kU16, "u16"},
                                         {DType::kU8, "u8"}}};

}  // namespace

std::string_view dtype_name(DType dtype) { return kNames[static_cast<size_t>(dtype)].name; }

DType parse_dtype(std::string_view name) {
  for (const Name& entry : kNames)
    if (entry.name == name) return entry.dtype;
  throw_bad_input("unknown dtype '{}': use f32, bf16, f64, i32, i64, u16 or u8", name);
}

float to_float(BF16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

BF16 to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace strata

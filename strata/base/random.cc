// SPDX-License-Identifier: Apache-2.0
#include "strata/base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "strata/base/error.h"

namespace strata {
namespace {

constexpr int kPhiloxRounds = 10;
constexpr uint64_t kFeistelRounds = 6;
constexpr int kMinHalfBits = 2;  // a domain below 16 has too few round functions to look random

// The finalizer of SplitMix64: a bijection in which every input bit reaches every output bit.
uint64_t scramble(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace

PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  auto key_low = static_cast<uint32_t>(key);
  auto key_high = static_cast<uint32_t>(key >> 32);
  PhiloxBlock block = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                       static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t even = uint64_t{0xd2511f53u} * block[0];
    const uint64_t odd = uint64_t{0xcd9e8d57u} * block[2];
    block = {static_cast<uint32_t>(odd >> 32) ^ block[1] ^ key_low, static_cast<uint32_t>(odd),
             static_cast<uint32_t>(even >> 32) ^ block[3] ^ key_high, static_cast<uint32_t>(even)};
    key_low += 0x9e3779b9u;
    key_high += 0xbb67ae85u;
  }
  return block;
}

uint64_t mix_key(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  uint64_t mixed = 0;
  for (const uint64_t part : {a, b, c, d}) mixed = scramble((mixed ^ scramble(part + kGolden)) + kGolden);
  return mixed;
}

float uniform_from(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

std::array<float, 2> normal_from(uint32_t first, uint32_t second) {
  const double radius = std::sqrt(-2.0 * std::log((first + 0.5) * 0x1p-32));
  const double angle = 2.0 * std::numbers::pi * 0x1p-32 * second;
  return {static_cast<float>(radius * std::cos(angle)), static_cast<float>(radius * std::sin(angle))};
}

uint64_t permute(uint64_t position, uint64_t size, uint64_t key) {
  STRATA_CHECK(position < size, "position {} of {}", position, size);
  const int half_bits = std::max(kMinHalfBits, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t value = position;
  do {  // outside [0, size): walk on along the cycle, which returns to the set it started from
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < kFeistelRounds; ++round) {
      const uint64_t next = left ^ (philox(key, right, round)[0] & mask);
      left = right;
      right = next;
    }
    value = left << half_bits | right;
  } while (value >= size);
  return value;
}

}  // namespace strata

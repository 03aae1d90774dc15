// SPDX-License-Identifier: Apache-2.0
// Counter-based randomness (Philox4x32-10, Salmon et al., SC'11): a value depends only on its key and counter,
// never on the order or the thread that asks. Pure functions, safe from any thread.
#pragma once

#include <array>
#include <cstdint>

namespace strata {

using PhiloxBlock = std::array<uint32_t, 4>;

// Four random words for one (key, counter).
PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high);

// A well-mixed 64-bit key from parts such as (seed, step, layer, site). Order matters.
uint64_t mix_key(uint64_t a, uint64_t b, uint64_t c = 0, uint64_t d = 0);

// Uniform in [0, 1) with 24 bits.
float uniform_from(uint32_t word);

// Two standard normal values from two words (Box-Muller).
std::array<float, 2> normal_from(uint32_t first, uint32_t second);

// A keyed bijection of [0, size): position -> index. Random access shuffling in constant memory
// (a Feistel network over philox with cycle walking). Precondition: position < size.
uint64_t permute(uint64_t position, uint64_t size, uint64_t key);

}  // namespace strata

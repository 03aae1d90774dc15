// SPDX-License-Identifier: Apache-2.0
// What plan invariance claims (docs/numerics.md), checked for the draw of a seed with ranks as threads. Every function
// returns nothing where its claim holds, otherwise what differs and the draw.
#pragma once

#include <cstdint>
#include <string>

namespace strata::testing {

// SGD is close to the training of one rank.
std::string check_sgd(uint64_t seed);
// So is AdamW, in units of how far it moves a tensor.
std::string check_adamw(uint64_t seed);
// How states are sharded and what is recomputed changes no bit.
std::string check_sharding(uint64_t seed);

}  // namespace strata::testing

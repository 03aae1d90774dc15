// SPDX-License-Identifier: Apache-2.0
// The place function of the compiler: chunks whose parameters are sharded (ZeRO 3) are gathered into a slot one layer
// before their use and released after the layer. Pure.
#pragma once

#include "strata/program/program.h"

namespace strata {

// Rewrites parameter uses of sharded chunks to slots and inserts the gathers. `data_groups[c]` is the group of chunk c.
void place_chunks(Program& program, const ProgramSet& set, const std::vector<int>& chunk_groups);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// The place function of the compiler: chunks whose parameters are sharded (ZeRO 3) are gathered into a slot one layer
// before their use. Layers form units; a slot serves all consecutive runs of a unit and is released after its last use
// among them. Pure.
#pragma once

#include "strata/program/program.h"

namespace strata {

// The unit of every layer of a plan: the layer itself; breadth-first the virtual stage, whose weights stay while all
// micro-batches go through it.
std::vector<int> gather_units(const Plan& plan);

// Rewrites parameter uses of sharded chunks to slots and inserts the gathers. `chunk_groups[c]` is the group of chunk
// c, `units[l]` the unit of layer l.
void place_chunks(Program& program, const ProgramSet& set, const std::vector<int>& chunk_groups,
                  const std::vector<int>& units);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// Programs for people and for comparison: a listing, the memory ledger, and a digest. `strata program` prints the
// listing, `strata check` the ledger. Pure; programs must be packed.
#pragma once

#include <string>
#include <vector>

#include "strata/layers/declaration.h"
#include "strata/program/program.h"

namespace strata {

// Groups, every instruction in list order with its number, then the ledger. One line each.
std::string describe_program(const Program& program, const std::vector<LayerDecl>& layers);

// Bytes alive at the fullest moment by booking kind, their sum, and the arena that packing needs, for every tier in
// use.
std::string describe_ledger(const Program& program);

// Sixteen hexadecimal digits over every chunk, booking, group and instruction of the set: equal on every machine for
// the same set, another one when anything in it changes.
std::string program_digest(const ProgramSet& set);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// Order and memory of a program: waits between queues, addresses of bookings, and the proof that both are right. Pure.
#pragma once

#include "strata/program/program.h"

namespace strata {

// Adds the waits that conflicting uses of one booking on different queues need (in list order), and no redundant ones.
void synchronize(Program& program);

// Gives every booking an address: persistent ones one after the other, then transient ones; two transient bookings
// share bytes only if all uses of one come before the first use of the other in the list, and the waits that guarantee
// it are added (again none redundant).
void pack(Program& program);

// Proves, and aborts with the instruction otherwise: no unordered conflicting access, also through shared bytes; every
// read written before; waits point backwards; bookings inside the arena.
void check(const Program& program);

// Bytes of bookings that are alive at the fullest moment, per kind, on one tier: the memory ledger.
struct Ledger {
  std::array<int64_t, kNumBookingKinds> bytes{};  // at the peak, by kind
  int64_t live_bytes = 0;                         // their sum
  int64_t arena_bytes = 0;                        // what packing needs
  int peak_instruction = 0;
};
Ledger ledger(const Program& program, Tier tier);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// The expand function of the compiler: every segment of every scheduled micro-batch as a run, and the communication
// between them, inserted where a producer's layout is not the consumer's. The result has no waits and no offsets yet.
// Pure.
#pragma once

#include "strata/program/chunks.h"
#include "strata/program/compile.h"

namespace strata {

// Persistent bookings of a set: parameters, optimizer states, batch sheet, scalars, caches. Fills everything but
// `programs`.
ProgramSet book_states(const CompileInput& input, const std::vector<LayerDecl>& layers, bool with_optimizer,
                       bool with_cache, std::vector<Booking>& bookings);

// The most tokens of a micro-batch that a rank has, in every layer.
std::vector<int64_t> micro_batch_capacities(const CompileInput& input);

Program expand_step(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                    const std::vector<Booking>& persistent);
Program expand_evaluation(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                          const std::vector<Booking>& persistent);
Program expand_decode(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                      const std::vector<Booking>& persistent);
Program expand_save(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                    const std::vector<Booking>& persistent);

}  // namespace strata

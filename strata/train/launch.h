// SPDX-License-Identifier: Apache-2.0
// Starts the ranks of a run on this machine: replaces this process by mpirun, which runs the same command once per
// rank.
#pragma once

#include <string>
#include <vector>

#include "strata/spec/train_config.h"

namespace strata {

// `command` is the program and its arguments. First refuses what every rank would refuse: a plan for another number of
// ranks, sizes that contradict. Throws Error when mpirun is not there; does not return otherwise. Ranks may be more
// than cores; none is bound to cores; they have minutes to save when mpirun is told to stop.
[[noreturn]] void start_ranks(const TrainConfig& config, int64_t num_ranks, const std::vector<std::string>& command);

}  // namespace strata

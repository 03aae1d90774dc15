// SPDX-License-Identifier: Apache-2.0
// Starts the ranks of a run on this machine: mpirun runs the same command once per rank, and this process waits for it.
#pragma once

#include <string>
#include <vector>

#include "strata/comm/comm.h"
#include "strata/spec/train_config.h"

namespace strata {

// `command` is the program and its arguments. First refuses what every rank would refuse: a plan for another number of
// ranks, sizes that contradict. SIGTERM and SIGINT let the ranks save and stop, SIGUSR1 lets them save. Ranks may be
// more than cores and none is bound to cores. Returns mpirun's exit code, which is that of the first rank that failed.
// Throws Error when mpirun is not there.
int run_ranks(const TrainConfig& config, int64_t num_ranks, const std::vector<std::string>& command);

// For ranks that something else started: throws Error when their number is not the one asked for (0: any is right).
// Called by all ranks.
void require_num_ranks(int64_t num_ranks, Comm& comm);

}  // namespace strata

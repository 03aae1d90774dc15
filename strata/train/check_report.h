// SPDX-License-Identifier: Apache-2.0
// `strata check`: what a run would be, without running it; refuses what train refuses.
#pragma once

#include <string>

#include "strata/spec/train_config.h"

namespace strata {

// Sizes, batch, decay groups, memory ledger, disk ledger; with several ranks the arena of each, after the proof that
// their programs run to the end together. num_ranks 0: as many as the plan has. Opens the data (tokenising it when
// needed) but allocates no model.
std::string check_report(const TrainConfig& config, int64_t num_ranks);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// `strata check`: what a run would be, without running it; refuses what train refuses.
#pragma once

#include <string>

#include "strata/spec/train_config.h"

namespace strata {

// Sizes, batch, decay groups, memory ledger, disk ledger. Opens the data (tokenising it when needed) but allocates no
// model.
std::string check_report(const TrainConfig& config);

}  // namespace strata

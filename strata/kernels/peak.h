// SPDX-License-Identifier: Apache-2.0
// The arithmetic limit of this machine, measured: what shares of peak in logs and benchmarks refer to.
#pragma once

#include "strata/device/cpu/team.h"

namespace strata::kernels {

// f32 operations per second of fused multiply-adds on registers, at the widest vectors the CPU runs, on all members of
// the team: the best of many short runs, about 200 ms together.
double measure_peak_flops(Team& team);

}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
// The learning rate of every step, as docs/optimizers.md defines it, to the last bit. A pure function of the
// config and the step: it does not know ranks, micro-batches or restarts, so none of them can advance it.
// Steps are counted from 1; the first update uses learning_rate(..., 1).
#pragma once

#include <cstdint>

#include "strata/spec/train_config.h"

namespace strata {

// Precondition: validate_schedule passed and 1 <= step <= max_steps.
double learning_rate(const ScheduleConfig& schedule, double peak_lr, int64_t max_steps, int64_t step);

// Throws Error (bad input) with both numbers for what cannot be followed: a warm-up or decay longer than the run, a
// final rate above the peak, a decay or final rate given to the constant schedule, which has neither.
void validate_schedule(const ScheduleConfig& schedule, double peak_lr, int64_t max_steps);

}  // namespace strata

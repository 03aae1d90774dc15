// SPDX-License-Identifier: Apache-2.0
#include "strata/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "strata/base/error.h"

namespace strata {
namespace {

// The steps the decay lies between: the last at the peak and the first at the final rate.
struct Decay {
  int64_t start = 0;
  int64_t end = 0;
};

Decay find_decay(const ScheduleConfig& schedule, int64_t max_steps) {
  const int64_t first = std::max<int64_t>(schedule.warmup_steps, 1);  // the first step at the peak
  if (schedule.kind == ScheduleKind::kConstant) return {max_steps, max_steps};
  if (schedule.kind == ScheduleKind::kWsd) return {std::max(max_steps - schedule.decay_steps, first), max_steps};
  return {first, schedule.decay_steps == 0 ? max_steps : schedule.warmup_steps + schedule.decay_steps};
}

void validate_lengths(const ScheduleConfig& schedule, int64_t max_steps) {
  if (schedule.warmup_steps < 0 || schedule.decay_steps < 0)
    throw_bad_input("schedule.warmup_steps {} and schedule.decay_steps {} must not be negative", schedule.warmup_steps,
                    schedule.decay_steps);
  if (schedule.warmup_steps > max_steps)
    throw_bad_input("schedule.warmup_steps {} exceeds the {} steps of the run: use at most {}", schedule.warmup_steps,
                    max_steps, max_steps);
  if (schedule.decay_steps > max_steps - schedule.warmup_steps)
    throw_bad_input(
        "schedule.warmup_steps {} + schedule.decay_steps {} exceed the {} steps of the run: use at most {} decay steps",
        schedule.warmup_steps, schedule.decay_steps, max_steps, max_steps - schedule.warmup_steps);
}

}  // namespace

double learning_rate(const ScheduleConfig& schedule, double peak_lr, int64_t max_steps, int64_t step) {
  STRATA_CHECK(step >= 1 && step <= max_steps, "step {} of {}", step, max_steps);
  if (step < schedule.warmup_steps)
    return peak_lr * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  const Decay decay = find_decay(schedule, max_steps);
  if (step <= decay.start) return peak_lr;
  if (step >= decay.end) return schedule.min_lr;
  const double range = peak_lr - schedule.min_lr;
  const auto length = static_cast<double>(decay.end - decay.start);
  if (schedule.kind != ScheduleKind::kCosine)
    return schedule.min_lr + range * static_cast<double>(decay.end - step) / length;
  const double turned = std::numbers::pi * static_cast<double>(step - decay.start) / length;
  return schedule.min_lr + range * 0.5 * (1.0 + std::cos(turned));
}

void validate_schedule(const ScheduleConfig& schedule, double peak_lr, int64_t max_steps) {
  if (max_steps < 1) throw_bad_input("a run of {} steps has no learning rate: use at least 1", max_steps);
  if (!(schedule.min_lr >= 0.0 && schedule.min_lr <= peak_lr))
    throw_bad_input("schedule.min_lr {} must lie between 0 and optimizer.lr {}", schedule.min_lr, peak_lr);
  validate_lengths(schedule, max_steps);
  if (schedule.kind == ScheduleKind::kConstant && (schedule.decay_steps > 0 || schedule.min_lr > 0.0))
    throw_bad_input("the constant schedule never decays: schedule.decay_steps {} and schedule.min_lr {} must be 0",
                    schedule.decay_steps, schedule.min_lr);
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/metrics.h"

#include <fmt/format.h>

namespace strata {
namespace {

constexpr MetricColumn kColumns[] = {
    {"step", "", &StepMetrics::step},
    {"tokens_seen", "train/tokens_seen", &StepMetrics::tokens_seen},
    {"loss", "train/loss", &StepMetrics::loss},
    {"learning_rate", "train/learning_rate", &StepMetrics::learning_rate},
    {"grad_norm", "train/grad_norm", &StepMetrics::grad_norm},
    {"tokens_per_second", "speed/tokens_per_second", &StepMetrics::tokens_per_second},
    {"mfu", "speed/mfu", &StepMetrics::mfu},
    {"memory_bytes", "memory/resident_bytes", &StepMetrics::memory_bytes},
    {"seconds_total", "seconds/total", &StepMetrics::seconds_total},
    {"seconds_compute", "seconds/compute", &StepMetrics::seconds_compute},
    {"seconds_data", "seconds/data", &StepMetrics::seconds_data},
    {"seconds_save", "seconds/save", &StepMetrics::seconds_save},
    {"seconds_eval", "seconds/eval", &StepMetrics::seconds_eval},
    {"skipped_steps", "train/skipped_steps", &StepMetrics::skipped_steps},
    {"validation_loss", "validation/loss", &StepMetrics::validation_loss},
};

std::string format_value(int64_t value) { return fmt::format("{}", value); }
std::string format_value(double value) { return fmt::format("{}", value); }
std::string format_value(std::optional<double> value) { return value ? format_value(*value) : ""; }

}  // namespace

std::string MetricColumn::text(const StepMetrics& metrics) const {
  return std::visit([&metrics](auto column) { return format_value(metrics.*column); }, member);
}

std::optional<double> MetricColumn::value(const StepMetrics& metrics) const {
  return std::visit([&metrics](auto column) { return std::optional<double>(metrics.*column); }, member);
}

std::span<const MetricColumn> metric_columns() { return kColumns; }

}  // namespace strata

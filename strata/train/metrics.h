// SPDX-License-Identifier: Apache-2.0
// What a run measures at every step, and the one table of its columns that the CSV file and TensorBoard are written
// from. A MetricsWriter gets every step once, in order, on one rank; writers differ in where the numbers go
// (docs/log.md). Opened after a resume, a writer forgets what an earlier process wrote beyond the resumed step, so that
// every step appears once. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace strata {

struct StepMetrics {
  int64_t step = 0;         // 1 is the first
  int64_t tokens_seen = 0;  // of the whole run, resumed parts included
  double loss = 0;          // mean over the counted tokens of the global batch
  double learning_rate = 0;
  double grad_norm = 0;  // global norm before clipping
  double tokens_per_second = 0;
  double mfu = 0;            // model flops (flops.h) over seconds_total at the measured peak; 1 is the peak
  int64_t memory_bytes = 0;  // resident memory of the process
  double seconds_total = 0;  // wall time of the step, everything included
  double seconds_compute = 0;
  double seconds_data = 0;
  double seconds_save = 0;
  double seconds_eval = 0;
  int64_t skipped_steps = 0;                   // of the whole run: updates left out because a gradient was not finite
  std::optional<double> validation_loss = {};  // present when this step was evaluated
};

struct MetricColumn {
  using Member = std::variant<int64_t StepMetrics::*, double StepMetrics::*, std::optional<double> StepMetrics::*>;
  std::string_view name;  // in the CSV header
  std::string_view tag;   // in TensorBoard; empty: not written there
  Member member;

  std::string text(const StepMetrics& metrics) const;             // shortest exact form; empty when absent
  std::optional<double> value(const StepMetrics& metrics) const;  // nothing when absent
};

// In the order of the CSV file.
std::span<const MetricColumn> metric_columns();

class MetricsWriter {
 public:
  virtual ~MetricsWriter() = default;
  virtual void write(const StepMetrics& metrics) = 0;
};

}  // namespace strata

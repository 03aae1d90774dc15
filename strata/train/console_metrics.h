// SPDX-License-Identifier: Apache-2.0
// The steps as a person sees them. On a terminal one live line: bar, time to go, then as many fields as fit, and a line
// that stays for every evaluation. Elsewhere plain lines, every `every` steps, at evaluations and at the last step:
//   step 120/2000  loss 3.4521  lr 2.9e-04  norm 0.83  15.2k tok/s  mfu 41.2%  mem 312.0 MiB  <shares>  eta 3 min 12 s
// with the shares of time of all steps since the line before: compute 95% data 1% save 0%. The time to go is from the
// last 20 steps or so.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "strata/base/progress.h"
#include "strata/train/metrics.h"

namespace strata {

struct ConsoleOptions {
  int64_t max_steps = 0;  // of the whole run
  int64_t every = 1;      // steps per plain line
};

class ConsoleMetrics : public MetricsWriter {
 public:
  ConsoleMetrics(std::FILE* out, const ConsoleOptions& options);
  void write(const StepMetrics& metrics) override;

 private:
  void measure(const StepMetrics& metrics);
  std::string time_to_go(int64_t step) const;  // "eta 3 min 12 s" or "done"
  void show_live(const StepMetrics& metrics, const std::vector<std::string>& fields);

  TerminalLine line_;
  ConsoleOptions options_;
  StepMetrics since_line_;    // only its seconds: sums since the last plain line
  double step_seconds_ = 0;   // smoothed
  int64_t num_measured_ = 0;  // steps in step_seconds_
};

}  // namespace strata

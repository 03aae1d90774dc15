// SPDX-License-Identifier: Apache-2.0
// The log of a run (docs/log.md): what it is at its start, a row per step for people, as CSV and as TensorBoard events,
// the loss curve and the trace of instructions at its end.
#pragma once

#include <memory>
#include <vector>

#include "strata/exec/executor.h"
#include "strata/train/corpus.h"
#include "strata/train/metrics.h"
#include "strata/train/run_folder.h"

namespace strata {

// Lines about model, data and memory.
void log_run(const Workload& workload, const Corpus& corpus);

// One rank of a run has it.
class RunLog {
 public:
  // Rows after `step` that an earlier process wrote are forgotten.
  RunLog(const Workload& workload, const RunFolder& folder, int64_t step, int64_t max_steps);

  void write(const StepMetrics& metrics);
  // Closes the files and draws the loss curve. Call once.
  void finish();

 private:
  std::filesystem::path csv_;  // empty: none
  std::filesystem::path loss_curve_;
  std::string title_;
  std::vector<std::unique_ptr<MetricsWriter>> writers_;
};

// Every rank writes its own: trace.json, trace-1.json, ...
void write_instruction_trace(const RunFolder& folder, const Workload& workload,
                             const std::vector<InstructionTime>& times);

}  // namespace strata

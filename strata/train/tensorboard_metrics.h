// SPDX-License-Identifier: Apache-2.0
// TensorBoard scalars of a run: events.out.tfevents.<number>.strata in a folder of their own, one file per process that
// trained the run. Opened with the step that the run resumes from (0: a fresh run), it cuts earlier files of this run
// after that step and starts the next one with a session start, so that TensorBoard shows every step once whether it
// reads the files afresh or was watching. Files of other programs are left alone.
#pragma once

#include <cstdint>
#include <filesystem>

#include "strata/base/append_file.h"
#include "strata/train/metrics.h"

namespace strata {

class TensorboardMetrics : public MetricsWriter {
 public:
  // Creates `folder` if it is missing; its parent must exist.
  TensorboardMetrics(const std::filesystem::path& folder, int64_t resumed_step);
  void write(const StepMetrics& metrics) override;

 private:
  AppendFile file_;
};

}  // namespace strata

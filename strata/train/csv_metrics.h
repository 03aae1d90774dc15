// SPDX-License-Identifier: Apache-2.0
// metrics.csv: a header and one row per step, appended as the steps end. Opened with the step that the run resumes from
// (0: a fresh run), it drops the rows beyond it and a row cut short by a crash; the rest stays byte for byte.
// Refuses a file whose header is not the one of this version. See docs/log.md for the columns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "strata/base/append_file.h"
#include "strata/train/metrics.h"

namespace strata {

class CsvMetrics : public MetricsWriter {
 public:
  CsvMetrics(const std::filesystem::path& path, int64_t resumed_step);
  void write(const StepMetrics& metrics) override;

 private:
  AppendFile file_;
};

// One column of a metrics.csv by step; rows where it is empty are left out. Throws Error for a file or row that no
// CsvMetrics wrote, naming the line, and for an unknown column.
struct MetricPoint {
  int64_t step = 0;
  double value = 0;
  bool operator==(const MetricPoint&) const = default;
};
std::vector<MetricPoint> read_csv_column(const std::filesystem::path& path, std::string_view column);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/csv_metrics.h"

#include <charconv>
#include <utility>

#include "strata/base/atomic_file.h"
#include "strata/base/error.h"
#include "strata/base/file.h"

namespace strata {
namespace {

std::string header() {
  std::string line;
  for (const MetricColumn& column : metric_columns()) {
    if (!line.empty()) line += ',';
    line += column.name;
  }
  return line;
}

std::string row(const StepMetrics& metrics) {
  std::string line;
  for (const MetricColumn& column : metric_columns()) {
    if (&column != metric_columns().data()) line += ',';
    line += column.text(metrics);
  }
  return line;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename Number>
Number parse_number(std::string_view text, const std::filesystem::path& path, size_t line) {
  Number number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    throw_bad_input("{} line {}: \"{}\" is not a number; the file was changed by hand: move it away", path.string(),
                    line, text);
  }
  return number;
}

// The complete lines after the header; what follows the last newline is a row cut short.
std::vector<std::string_view> complete_rows(std::string_view contents, const std::filesystem::path& path) {
  std::vector<std::string_view> lines = split(contents, '\n');
  lines.pop_back();
  if (lines.empty()) return lines;
  if (lines.front() != header()) {
    throw_bad_input(
        "{} has the columns \"{}\", but this version writes \"{}\": move the file away or choose another "
        "log.metrics_csv",
        path.string(), lines.front(), header());
  }
  lines.erase(lines.begin());
  return lines;
}

// Leaves the header and the rows up to `resumed_step`. Returns the path, so that the file can be opened after it.
const std::filesystem::path& rewind(const std::filesystem::path& path, int64_t resumed_step) {
  const std::string before = std::filesystem::exists(path) ? read_text_file(path) : "";
  std::string kept = header() + '\n';
  size_t line = 1;
  for (const std::string_view text : complete_rows(before, path)) {
    ++line;
    if (parse_number<int64_t>(text.substr(0, text.find(',')), path, line) > resumed_step) continue;
    kept += text;
    kept += '\n';
  }
  if (kept != before) write_file_atomically(path, kept);
  return path;
}

}  // namespace

CsvMetrics::CsvMetrics(const std::filesystem::path& path, int64_t resumed_step) : file_(rewind(path, resumed_step)) {}

void CsvMetrics::write(const StepMetrics& metrics) { file_.append(row(metrics) + '\n'); }

std::vector<MetricPoint> read_csv_column(const std::filesystem::path& path, std::string_view column) {
  const auto columns = metric_columns();
  size_t wanted = 0;
  while (wanted < columns.size() && columns[wanted].name != column) ++wanted;
  if (wanted == columns.size())
    throw_bad_input("{} has no column \"{}\"; its columns are {}", path.string(), column, header());
  const std::string contents = read_text_file(path);
  std::vector<MetricPoint> points;
  size_t line = 1;
  for (const std::string_view text : complete_rows(contents, path)) {
    const std::vector<std::string_view> cells = split(text, ',');
    ++line;
    if (cells.size() != columns.size()) {
      throw_bad_input("{} line {} has {} cells instead of {}: move the file away", path.string(), line, cells.size(),
                      columns.size());
    }
    if (cells[wanted].empty()) continue;
    points.push_back({parse_number<int64_t>(cells[0], path, line), parse_number<double>(cells[wanted], path, line)});
  }
  return points;
}

}  // namespace strata

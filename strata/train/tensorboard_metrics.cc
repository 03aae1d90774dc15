// SPDX-License-Identifier: Apache-2.0
#include "strata/train/tensorboard_metrics.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>

#include "strata/base/error.h"
#include "strata/base/file.h"
#include "strata/train/event_file.h"

namespace strata {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::string_view kSuffix = ".strata";

// TensorBoard reads files in the order of their names.
std::string file_name(int64_t number) { return fmt::format("{}{:010}{}", kPrefix, number, kSuffix); }

// The number in one of our names; nothing for a file of another program.
std::optional<int64_t> number_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  int64_t number = 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number);
  return name == file_name(number) ? std::optional(number) : std::nullopt;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void cut_after_step(const std::filesystem::path& path, int64_t step) {
  const std::string contents = read_text_file(path);
  const size_t kept = bytes_up_to_step(contents, step);
  if (kept == contents.size()) return;
  if (::truncate(path.c_str(), static_cast<off_t>(kept)) != 0) throw_file_error("cut", path, errno);
}

// Cuts the files of earlier processes and names the next one.
std::filesystem::path next_file(const std::filesystem::path& folder, int64_t resumed_step) {
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  std::filesystem::directory_iterator entry(folder, error);
  if (error) throw_file_error("open", folder, error.value());
  int64_t last_number = 0;
  for (const auto& file : entry) {
    const std::optional<int64_t> number = number_of(file.path().filename().string());
    if (!number) continue;
    cut_after_step(file.path(), resumed_step);
    last_number = std::max(last_number, *number);
  }
  return folder / file_name(last_number + 1);
}

}  // namespace

TensorboardMetrics::TensorboardMetrics(const std::filesystem::path& folder, int64_t resumed_step)
    : file_(next_file(folder, resumed_step)) {
  file_.append(version_record(wall_time()));
  file_.append(session_start_record(wall_time(), resumed_step + 1));
}

void TensorboardMetrics::write(const StepMetrics& metrics) {
  std::vector<Scalar> scalars;
  for (const MetricColumn& column : metric_columns()) {
    const std::optional<double> value = column.value(metrics);
    if (!column.tag.empty() && value) scalars.push_back({column.tag, *value});
  }
  file_.append(scalars_record(wall_time(), metrics.step, scalars));
}

}  // namespace strata

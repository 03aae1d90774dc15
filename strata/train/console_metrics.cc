// SPDX-License-Identifier: Apache-2.0
#include "strata/train/console_metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "strata/base/error.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr int64_t kSmoothedSteps = 20;
constexpr int kBarCells = 20;

std::string shares(const StepMetrics& sums) {
  const auto percent = [&sums](double seconds) {
    return sums.seconds_total > 0 ? 100 * seconds / sums.seconds_total : 0;
  };
  std::string text = fmt::format("compute {:.0f}% data {:.0f}% save {:.0f}%", percent(sums.seconds_compute),
                                 percent(sums.seconds_data), percent(sums.seconds_save));
  if (sums.seconds_eval > 0) text += fmt::format(" eval {:.0f}%", percent(sums.seconds_eval));
  return text;
}

std::vector<std::string> step_fields(const StepMetrics& metrics, const StepMetrics& sums, int64_t max_steps) {
  std::vector<std::string> fields = {fmt::format("step {}/{}", metrics.step, max_steps),
                                     fmt::format("loss {:.4f}", metrics.loss)};
  if (metrics.validation_loss) fields.push_back(fmt::format("validation {:.4f}", *metrics.validation_loss));
  fields.push_back(fmt::format("lr {:.1e}", metrics.learning_rate));
  fields.push_back(fmt::format("norm {:.2f}", metrics.grad_norm));
  fields.push_back(fmt::format("{} tok/s", format_count(std::llround(metrics.tokens_per_second))));
  fields.push_back(fmt::format("mfu {:.1f}%", 100 * metrics.mfu));
  fields.push_back(fmt::format("mem {}", format_bytes(metrics.memory_bytes)));
  if (metrics.skipped_steps > 0) fields.push_back(fmt::format("skipped {}", metrics.skipped_steps));
  fields.push_back(shares(sums));
  return fields;
}

}  // namespace

ConsoleMetrics::ConsoleMetrics(std::FILE* out, const ConsoleOptions& options) : line_(out), options_(options) {
  STRATA_CHECK(options.max_steps > 0 && options.every > 0, "{} steps, a line every {}", options.max_steps,
               options.every);
}

void ConsoleMetrics::write(const StepMetrics& metrics) {
  measure(metrics);
  const std::vector<std::string> fields = step_fields(metrics, since_line_, options_.max_steps);
  if (line_.is_terminal()) show_live(metrics, fields);
  const bool last = metrics.step == options_.max_steps;
  if (metrics.step % options_.every != 0 && !last && !metrics.validation_loss) return;
  if (!line_.is_terminal()) line_.print(fmt::format("{}  {}", fmt::join(fields, "  "), time_to_go(metrics.step)));
  since_line_ = {};
}

void ConsoleMetrics::measure(const StepMetrics& metrics) {
  num_measured_ = std::min(num_measured_ + 1, kSmoothedSteps);
  step_seconds_ += (metrics.seconds_total - step_seconds_) / static_cast<double>(num_measured_);
  for (const auto seconds : {&StepMetrics::seconds_total, &StepMetrics::seconds_compute, &StepMetrics::seconds_data,
                             &StepMetrics::seconds_save, &StepMetrics::seconds_eval}) {
    since_line_.*seconds += metrics.*seconds;
  }
}

std::string ConsoleMetrics::time_to_go(int64_t step) const {
  if (step >= options_.max_steps) return "done";
  return fmt::format("eta {}", format_seconds(step_seconds_ * static_cast<double>(options_.max_steps - step)));
}

void ConsoleMetrics::show_live(const StepMetrics& metrics, const std::vector<std::string>& fields) {
  if (metrics.validation_loss) {
    line_.print(fmt::format("{}  {}  {}", fields[0], fields[1], fields[2]));
  }
  const double fraction = static_cast<double>(metrics.step) / static_cast<double>(options_.max_steps);
  std::string text =
      fmt::format("{} {:.0f}%  {}", format_bar(fraction, kBarCells), 100 * fraction, time_to_go(metrics.step));
  for (const std::string& field : fields) {
    if (static_cast<int>(text.size() + 2 + field.size()) > line_.width()) break;
    text += "  " + field;
  }
  line_.show(text);
}

}  // namespace strata

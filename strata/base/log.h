// SPDX-License-Identifier: Apache-2.0
// What a run tells a person besides its metrics: plain lines on stderr, "warning: " before a warning, flushed at once.
// Safe from any thread. On a terminal a line first clears the live line of a progress bar, which then redraws itself.
// Results of a command go to stdout and are not log lines; a failure is an Error, not a log line.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace strata {

// While one lives, its thread logs nothing: of several ranks that would say the same, the first one does.
class QuietLog {
 public:
  QuietLog();
  ~QuietLog();
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
};

enum class LogLevel { kInfo, kWarning };

// Writes one line; `message` has no newline at its end.
void log_line(LogLevel level, std::string_view message);

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace strata

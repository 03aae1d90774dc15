// SPDX-License-Identifier: Apache-2.0
// Two kinds of failure. STRATA_CHECK: a bug in Strata; prints file:line and aborts.
// Error: anything a user or a machine can cause; says what was wrong, the numbers, and what would work.
// The command turns an Error into its exit code (2 bad input, 1 failed run).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace strata {

enum class ErrorKind {
  kBadInput,   // config, data, file contents, plan: exit code 2
  kFailedRun,  // disk full, machine failure, diverged run: exit code 1
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <typename... Args>
[[noreturn]] void throw_bad_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::kBadInput, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void throw_failed_run(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::kFailedRun, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace strata

// Aborts when `condition` is false. A macro because the message must not be formatted on the fast path.
#define STRATA_CHECK(condition, ...)                                                                    \
  do {                                                                                                  \
    if (!(condition)) ::strata::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (0)

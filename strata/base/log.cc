// SPDX-License-Identifier: Apache-2.0
#include "strata/base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <memory>

namespace strata {
namespace {

thread_local int num_quiet = 0;

spdlog::logger make_logger() {
  spdlog::logger logger("strata", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger.set_pattern(::isatty(STDERR_FILENO) != 0 ? "\r\x1b[K%v" : "%v");
  logger.flush_on(spdlog::level::info);
  return logger;
}

}  // namespace

QuietLog::QuietLog() { ++num_quiet; }
QuietLog::~QuietLog() { --num_quiet; }

void log_line(LogLevel level, std::string_view message) {
  if (num_quiet > 0) return;
  static spdlog::logger logger = make_logger();
  if (level == LogLevel::kWarning) {
    logger.warn("warning: {}", message);
  } else {
    logger.info("{}", message);
  }
}

}  // namespace strata

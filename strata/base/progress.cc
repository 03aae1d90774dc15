// SPDX-License-Identifier: Apache-2.0
#include "strata/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "strata/base/error.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr int kBarCells = 20;

void put(std::FILE* out, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

bool shows_live_lines(std::FILE* out) {
  const char* const terminal = std::getenv("TERM");
  return ::isatty(::fileno(out)) != 0 && (terminal == nullptr || std::strcmp(terminal, "dumb") != 0);
}

}  // namespace

std::string format_bar(double fraction, int cells) {
  const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * cells);
  const bool complete = filled == cells;
  return fmt::format("[{:=<{}}{}{: <{}}]", "", filled, complete ? "" : ">", "", complete ? 0 : cells - filled - 1);
}

TerminalLine::TerminalLine(std::FILE* out) : out_(out), is_terminal_(shows_live_lines(out)) {}

TerminalLine::~TerminalLine() {
  if (live_) put(out_, "\n");
}

int TerminalLine::width() const {
  winsize size = {};
  const bool known = ::ioctl(::fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1 : 79;  // the last column would move the cursor to the next line
}

void TerminalLine::show(std::string_view text) {
  STRATA_CHECK(is_terminal_, "a live line needs a terminal");
  put(out_, fmt::format("\r{}\x1b[K", text.substr(0, static_cast<size_t>(width()))));
  live_ = true;
}

void TerminalLine::print(std::string_view text) {
  put(out_, fmt::format("{}{}\n", live_ ? "\r\x1b[K" : "", text));
  live_ = false;
}

Progress::Progress(std::FILE* out, std::string label, std::string items, int64_t total)
    : line_(out),
      label_(std::move(label)),
      items_(std::move(items)),
      total_(total),
      interval_(line_.is_terminal() ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000)),
      next_(start_ + interval_) {
  STRATA_CHECK(total_ > 0, "progress of {} {}", total_, items_);
}

double Progress::seconds_since_start() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Progress::update(int64_t done) {
  if (Clock::now() < next_) return;
  next_ = Clock::now() + interval_;
  const double fraction = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  const std::string bar = line_.is_terminal() ? format_bar(fraction, kBarCells) + " " : "";
  std::string text = fmt::format("{} {}{:.0f}%  {} of {} {}", label_, bar, 100 * fraction, format_count(done),
                                 format_count(total_), items_);
  if (fraction > 0) text += fmt::format("  eta {}", format_seconds(seconds_since_start() * (1 / fraction - 1)));
  line_.is_terminal() ? line_.show(text) : line_.print(text);
}

void Progress::finish(int64_t done) {
  line_.print(
      fmt::format("{}: {} {} in {}", label_, format_count(done), items_, format_seconds(seconds_since_start())));
}

}  // namespace strata

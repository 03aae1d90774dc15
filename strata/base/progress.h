// SPDX-License-Identifier: Apache-2.0
// Progress for a person: one line that is rewritten in place on a terminal, plain lines everywhere else (a file, a
// pipe). TerminalLine is the line itself; Progress a bar over it for work whose amount is known. Width is asked at
// every redraw. One owner, one thread at a time; `out` must outlive both. Write errors are ignored: nothing depends on
// a bar.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace strata {

// "[=====>    ]" with `cells` cells between the brackets, for a fraction in [0, 1].
std::string format_bar(double fraction, int cells);

class TerminalLine {
 public:
  explicit TerminalLine(std::FILE* out);
  // Ends a live line, so that what follows starts on its own line.
  ~TerminalLine();
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;

  bool is_terminal() const { return is_terminal_; }
  // Columns that a live line can use; 79 where the terminal does not tell.
  int width() const;

  // Replaces the live line, cut to width(). Only on a terminal.
  void show(std::string_view text);
  // A line that stays, in place of the live line.
  void print(std::string_view text);

 private:
  std::FILE* out_;
  bool is_terminal_;
  bool live_ = false;
};

// For work of `total` items: "tokenise [======>        ] 45%  1.2M of 2.7M documents  eta 3.1 s". On a terminal redrawn
// at most ten times a second, elsewhere one line in ten seconds. The end prints "tokenise: 2.7M documents in 12.3 s".
class Progress {
 public:
  Progress(std::FILE* out, std::string label, std::string items, int64_t total);

  void update(int64_t done);
  // Prints the closing line with what was done; call once.
  void finish(int64_t done);

 private:
  using Clock = std::chrono::steady_clock;

  double seconds_since_start() const;

  TerminalLine line_;
  std::string label_;
  std::string items_;
  int64_t total_;
  Clock::time_point start_ = Clock::now();
  Clock::duration interval_;
  Clock::time_point next_;
};

}  // namespace strata

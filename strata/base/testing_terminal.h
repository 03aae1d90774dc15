// SPDX-License-Identifier: Apache-2.0
// Outputs for tests of what people see: a pseudo-terminal of a given width, and a temporary file for "not a terminal".
// text() is all that was written to it. Included by *_test.cc only.
#pragma once

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "strata/base/error.h"

namespace strata {

class PseudoTerminal {
 public:
  explicit PseudoTerminal(unsigned short columns) : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    STRATA_CHECK(master_ >= 0 && ::grantpt(master_) == 0 && ::unlockpt(master_) == 0, "no pseudo-terminal");
    const int slave = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    STRATA_CHECK(slave >= 0, "cannot open {}", ::ptsname(master_));
    termios mode = {};
    ::tcgetattr(slave, &mode);
    mode.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // newlines as written
    ::tcsetattr(slave, TCSANOW, &mode);
    const winsize size = {24, columns, 0, 0};
    ::ioctl(slave, TIOCSWINSZ, &size);
    out_ = ::fdopen(slave, "w");
    ::setenv("TERM", "xterm", 1);
  }
  ~PseudoTerminal() {
    std::fclose(out_);
    ::close(master_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  std::FILE* out() const { return out_; }
  // What was written since the last call.
  std::string text() const {
    char buffer[4096];
    std::string text;
    for (ssize_t got = 0; (got = ::read(master_, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(got));
    return text;
  }

 private:
  int master_;
  std::FILE* out_;
};

class PlainOutput {
 public:
  PlainOutput() : out_(std::tmpfile()) { STRATA_CHECK(out_ != nullptr, "no temporary file"); }
  ~PlainOutput() { std::fclose(out_); }
  PlainOutput(const PlainOutput&) = delete;
  PlainOutput& operator=(const PlainOutput&) = delete;

  std::FILE* out() const { return out_; }
  std::string text() const {
    std::string text(static_cast<size_t>(std::ftell(out_)), '\0');
    const ssize_t got = ::pread(::fileno(out_), text.data(), text.size(), 0);
    STRATA_CHECK(got == static_cast<ssize_t>(text.size()), "read {} of {} bytes", got, text.size());
    return text;
  }

 private:
  std::FILE* out_;
};

}  // namespace strata

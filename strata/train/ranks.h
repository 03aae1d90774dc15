// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run agree on outside of programs: a handful of numbers between steps. One rank without a comm
// agrees with itself. Every function but the first three is called by all ranks, in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "strata/base/error.h"
#include "strata/comm/comm.h"

namespace strata {

class Ranks {
 public:
  // `comm` may be null: one rank. Called by all ranks.
  explicit Ranks(Comm* comm);

  int rank() const { return comm_ == nullptr ? 0 : comm_->rank(); }
  int size() const { return comm_ == nullptr ? 1 : comm_->size(); }
  bool first() const { return rank() == 0; }

  void barrier();
  // Sums, in the order of ranks.
  double sum(double value);
  double smallest(double value);
  double largest(double value) { return -smallest(-value); }
  bool any(bool value) { return sum(value ? 1 : 0) > 0; }
  // A rank's text.
  std::string from(int rank, const std::string& text);
  // `body` on the first rank before the others, which may then read what it wrote.
  void first_then_others(const std::function<void()>& body);
  // `body` on all ranks; it calls no function of theirs. What one or all of them refuse is thrown as refuse() does,
  // with the first such rank where they do not all give the same reason.
  void together(const std::function<void()>& body);
  // All ranks have the same reason: the first one throws Error, which ends the run of the others while they wait, so
  // that it is told once.
  [[noreturn]] void refuse(const std::string& reason, ErrorKind kind = ErrorKind::kBadInput);
  // Refuses when a rank's text differs from the first one's: "config".
  void require_equal(std::string_view what, std::string_view text);

 private:
  Comm* comm_;
  Group all_;
};

}  // namespace strata

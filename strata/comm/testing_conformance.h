// SPDX-License-Identifier: Apache-2.0
// What every backend must do, as cases that each rank of a world runs at the same time. A case makes gtest expectations
// and leaves nothing behind. Included by tests only.
#pragma once

#include <ostream>
#include <span>

#include "strata/comm/comm.h"

namespace strata {

struct ConformanceCase {
  const char* name;
  void (*run)(Comm& comm);
};

std::span<const ConformanceCase> conformance_cases();

inline std::ostream& operator<<(std::ostream& out, const ConformanceCase& one) { return out << one.name; }

}  // namespace strata

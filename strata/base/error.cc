// SPDX-License-Identifier: Apache-2.0
#include "strata/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace strata {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  fmt::print(stderr, "strata: bug: {}:{}: {} is false: {}\n", file, line, condition, message);
  std::fflush(stderr);
  std::abort();
}

}  // namespace strata

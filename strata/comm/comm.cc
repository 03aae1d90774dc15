// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/comm.h"

#include <algorithm>

namespace strata {

PartRange part_range(int64_t elements, int64_t parts, int64_t part) {
  STRATA_CHECK(elements >= 0 && parts >= 1 && part >= 0 && part < parts, "part {} of {} of {} elements", part, parts,
               elements);
  const int64_t whole = elements / parts + (elements % parts != 0);
  const int64_t begin = std::min(elements, whole * part);
  return {begin, std::min(elements - begin, whole)};
}

}  // namespace strata

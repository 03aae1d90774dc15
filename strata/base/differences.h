// SPDX-License-Identifier: Apache-2.0
// What keeps a file from fitting a model, collected first and told in one message: names that are missing, that nobody
// expects, and that are there but different.
#pragma once

#include <string>
#include <vector>

namespace strata {

struct Differences {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> different;  // with both values

  bool none() const { return missing.empty() && unexpected.empty() && different.empty(); }
  // "missing: a, b; not expected: c; different: d" with at most six names of each kind.
  std::string text() const;
};

}  // namespace strata

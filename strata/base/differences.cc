// SPDX-License-Identifier: Apache-2.0
#include "strata/base/differences.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata {
namespace {

constexpr size_t kMostNames = 6;

void append(std::string& text, const char* title, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const size_t shown = std::min(names.size(), kMostNames);
  text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", title,
                      fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
}

}  // namespace

std::string Differences::text() const {
  std::string text;
  append(text, "missing", missing);
  append(text, "not expected", unexpected);
  append(text, "different", different);
  return text;
}

}  // namespace strata

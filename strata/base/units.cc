// SPDX-License-Identifier: Apache-2.0
#include "strata/base/units.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <span>

#include "strata/base/error.h"

namespace strata {
namespace {

// The value in the largest unit that leaves at least 1 after rounding to one decimal; exact below the first step.
std::string format_scaled(int64_t value, double step, std::span<const std::string_view> units) {
  const double magnitude = std::abs(static_cast<double>(value));
  if (magnitude < step) return fmt::format("{}{}", value, units[0]);
  double scaled = magnitude;
  size_t unit = 0;
  while (scaled >= step - 0.05 && unit + 1 < units.size()) {
    scaled /= step;
    ++unit;
  }
  return fmt::format("{}{:.1f}{}", value < 0 ? "-" : "", scaled, units[unit]);
}

// "4 min 05 s": the whole part and its remainder in 1/parts, from a number of the smaller unit.
std::string format_pair(int64_t small, int64_t parts, std::string_view large_name, std::string_view small_name) {
  return fmt::format("{} {} {:02} {}", small / parts, large_name, small % parts, small_name);
}

double bytes_of_unit(std::string_view unit, std::string_view text) {
  constexpr std::string_view kUnits[] = {"", "b", "kib", "mib", "gib", "tib", "kb", "mb", "gb", "tb"};
  constexpr double kBytes[] = {1, 1, 0x1p10, 0x1p20, 0x1p30, 0x1p40, 1e3, 1e6, 1e9, 1e12};
  std::string lower(unit);
  for (char& letter : lower) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  const auto found = std::find(std::begin(kUnits), std::end(kUnits), lower);
  if (found == std::end(kUnits)) {
    throw_bad_input("\"{}\" is not a size: unit \"{}\" is unknown; write e.g. 512MiB, 8GiB, 16GB or a number of bytes",
                    text, unit);
  }
  return kBytes[found - std::begin(kUnits)];
}

size_t edit_distance(std::string_view from, std::string_view to) {
  const size_t width = to.size() + 1;
  std::vector<size_t> table((from.size() + 1) * width);
  for (size_t i = 0; i <= from.size(); ++i) {
    for (size_t j = 0; j <= to.size(); ++j) {
      size_t& cell = table[i * width + j];
      if (i == 0 || j == 0) {
        cell = i + j;
        continue;
      }
      const size_t replaced = table[(i - 1) * width + j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      cell = std::min({replaced, table[(i - 1) * width + j] + 1, table[i * width + j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) cell = std::min(cell, table[(i - 2) * width + j - 2] + 1);
    }
  }
  return table.back();
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  constexpr std::string_view kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  return format_scaled(bytes, 1024, kUnits);
}

std::string format_count(int64_t count) {
  constexpr std::string_view kUnits[] = {"", "k", "M", "B", "T"};
  return format_scaled(count, 1000, kUnits);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{} s", seconds);
  if (seconds < 0) return fmt::format("-{}", format_seconds(-seconds));
  if (seconds < 999.5e-9) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 999.95e-6) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 999.95e-3) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole_seconds = static_cast<int64_t>(std::min(std::round(seconds), 9e15));
  if (whole_seconds < 3600) return format_pair(whole_seconds, 60, "min", "s");
  const int64_t minutes = (whole_seconds + 30) / 60;
  if (minutes < 24 * 60) return format_pair(minutes, 60, "h", "min");
  return format_pair((minutes + 30) / 60, 24, "d", "h");
}

int64_t parse_bytes(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || !std::isfinite(number)) {
    throw_bad_input("\"{}\" is not a size; write e.g. 512MiB, 8GiB, 16GB or a number of bytes", text);
  }
  std::string_view unit(parsed.ptr, static_cast<size_t>(end - parsed.ptr));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const double bytes = std::round(number * bytes_of_unit(unit, text));
  if (bytes < 0 || bytes >= 0x1p63) throw_bad_input("\"{}\" is not a size: it must be from 0 to 2^63 - 1 bytes", text);
  return static_cast<int64_t>(bytes);
}

std::string closest_match(std::string_view word, const std::vector<std::string>& candidates) {
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  std::string best;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string match = closest_match(word, candidates);
  return match.empty() ? "" : fmt::format(": did you mean {}?", match);
}

bool glob_match(std::string_view pattern, std::string_view text) {
  size_t at = 0, matched = 0;
  size_t star = std::string_view::npos, star_matched = 0;  // the last '*' and where its run ends so far
  while (matched < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      star_matched = matched;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == text[matched])) {
      ++at;
      ++matched;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      matched = ++star_matched;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

}  // namespace strata

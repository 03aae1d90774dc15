// SPDX-License-Identifier: Apache-2.0
// Numbers and names as people write them: sizes, counts, durations, near misses of a word, glob patterns.
// Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// "512 B", "1.5 KiB", "12.0 GiB": one decimal from KiB on; steps of 1024.
std::string format_bytes(int64_t bytes);
// "950", "12.3k", "124.4M", "1.1B", "3.2T": one decimal from 1000 on; steps of 1000.
std::string format_count(int64_t count);
// "850 ns", "3.2 us", "47.1 ms", "12.3 s", "4 min 05 s", "2 h 07 min", "3 d 04 h".
std::string format_seconds(double seconds);

// "8GiB", "512 MiB", "1.5GB", "1e9", "4096": a number and an optional unit (B, KiB... in steps of 1024, KB... of 1000;
// case does not matter). Rounded to whole bytes. Throws Error for anything else, a negative size, one beyond 63 bits.
int64_t parse_bytes(std::string_view text);

// The candidate with the fewest edits (insert, delete, replace, swap of neighbours) from `word`; the first one when
// several are equally near. Empty when more than a third of the word would change.
std::string closest_match(std::string_view word, const std::vector<std::string>& candidates);
// ": did you mean X?" for the end of a message, or nothing when no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

// '*' is any run of characters (dots and slashes too), '?' any one; everything else stands for itself.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace strata

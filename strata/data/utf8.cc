// SPDX-License-Identifier: Apache-2.0
#include "strata/data/utf8.h"

#include <cstring>

namespace strata {
namespace {

// What may follow a leading byte: its length, and the range of the second byte, which is where overlong forms (e0, f0),
// surrogates (ed) and values beyond U+10FFFF (f4) show. Length 0: no leading byte.
struct Lead {
  int length;
  uint8_t second_low;
  uint8_t second_high;
};

Lead classify(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

// Bytes of ASCII at the start, in steps of eight.
size_t ascii_run(const uint8_t* bytes, size_t size) {
  size_t run = 0;
  for (uint64_t word; run + 8 <= size; run += 8) {
    std::memcpy(&word, bytes + run, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  return run;
}

}  // namespace

Utf8Scan scan_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const size_t size = text.size();
  size_t place = 0;
  while (place < size) {
    place += ascii_run(bytes + place, size - place);
    if (place == size) break;
    const Lead lead = classify(bytes[place]);
    if (lead.length == 0) return {static_cast<int64_t>(place), Utf8End::kInvalid};
    for (int i = 1; i < lead.length; ++i) {
      if (place + i == size) return {static_cast<int64_t>(place), Utf8End::kTruncated};
      const uint8_t low = i == 1 ? lead.second_low : 0x80;
      const uint8_t high = i == 1 ? lead.second_high : 0xbf;
      if (bytes[place + i] < low || bytes[place + i] > high) return {static_cast<int64_t>(place), Utf8End::kInvalid};
    }
    place += static_cast<size_t>(lead.length);
  }
  return {static_cast<int64_t>(size), Utf8End::kComplete};
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// UTF-8 validation that can be cut anywhere. Pure function, safe from any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace strata {

enum class Utf8End {
  kComplete,   // all bytes are whole characters
  kTruncated,  // the bytes after `valid_bytes` begin a character that more bytes could complete
  kInvalid,    // the bytes after `valid_bytes` are no character, whatever follows
};

struct Utf8Scan {
  int64_t valid_bytes = 0;  // whole characters from the start
  Utf8End end = Utf8End::kComplete;
};

// Refuses overlong forms, surrogates and values above U+10FFFF, as Unicode does.
Utf8Scan scan_utf8(std::string_view text);

}  // namespace strata

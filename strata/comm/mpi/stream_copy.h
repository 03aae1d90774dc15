// SPDX-License-Identifier: Apache-2.0
// A copy whose destination is written past the caches. What one core has just written, another reads from memory
// several times faster than from the first one's cache, where they do not share one; and what is not read before it is
// overwritten need not be fetched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata {

// Complete before anything that is written afterwards can be seen. Small copies go through the caches.
void stream_copy(const std::byte* from, std::byte* to, int64_t num_bytes);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/mpi/stream_copy.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/comm/mpi/stream_copy.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Whole lines of 64 bytes, to the start of a line.
void stream_lines(const std::byte* from, std::byte* to, int64_t num_bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* source = reinterpret_cast<const uint8_t*>(from);
  auto* target = reinterpret_cast<uint8_t*>(to);
  for (int64_t i = 0; i < num_bytes; i += lanes) hn::Stream(hn::LoadU(d, source + i), d, target + i);
  hwy::FlushStream();
}

}  // namespace
}  // namespace strata::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {
namespace {

HWY_EXPORT(stream_lines);

constexpr int64_t kLineBytes = 64;
constexpr int64_t kSmall = 2048;  // what another core's cache delivers as fast as memory

}  // namespace

void stream_copy(const std::byte* from, std::byte* to, int64_t num_bytes) {
  if (num_bytes <= 0) return;
  const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLineBytes);
  const int64_t head = std::min(num_bytes, (kLineBytes - misplaced) % kLineBytes);
  const int64_t lines = num_bytes < kSmall ? 0 : (num_bytes - head) / kLineBytes * kLineBytes;
  if (lines == 0) {
    std::memcpy(to, from, static_cast<size_t>(num_bytes));
    return;
  }
  std::memcpy(to, from, static_cast<size_t>(head));
  std::memcpy(to + head + lines, from + head + lines, static_cast<size_t>(num_bytes - head - lines));
  HWY_DYNAMIC_DISPATCH(stream_lines)(from + head, to + head, lines);
}

}  // namespace strata
#endif

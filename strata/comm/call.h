// SPDX-License-Identifier: Apache-2.0
// What a call of a Comm is, in words: for messages, for counts, and to find members that do not make the same call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "strata/tensor/tensor.h"

namespace strata {

enum class CallKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kBarrier,
  kSend,
  kReceive
};
inline constexpr int kNumCallKinds = 8;

std::string_view call_name(CallKind kind);  // "all-reduce"

// Everything that must be equal on all members. Untyped bytes count as u8.
struct Call {
  CallKind kind = CallKind::kBarrier;
  DType dtype = DType::kU8;
  int from_member = 0;   // of a broadcast
  int64_t elements = 0;  // of an all-to-all 0: members have different ones

  bool operator==(const Call&) const = default;
};

std::string describe(const Call& call);  // "all-reduce of 12 f32"

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/call.h"

#include <array>

namespace strata {

std::string_view call_name(CallKind kind) {
  static constexpr std::array<std::string_view, kNumCallKinds> kNames = {
      "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "barrier", "send", "receive"};
  return kNames[static_cast<size_t>(kind)];
}

std::string describe(const Call& call) {
  if (call.kind == CallKind::kBarrier || call.kind == CallKind::kAllToAll) return std::string(call_name(call.kind));
  const std::string values = fmt::format("{} of {} {}", call_name(call.kind), call.elements, dtype_name(call.dtype));
  return call.kind == CallKind::kBroadcast ? fmt::format("{} from member {}", values, call.from_member) : values;
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// One rank's end of one group on one lane: what a backend implements. The calls are those of Comm, already checked and
// counted; one thread at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/comm/call.h"

namespace strata {

// What a group is made from.
struct GroupMembers {
  std::string name;
  std::vector<int> ranks;
  int lane = 0;
  int member = 0;  // this rank's place in `ranks`

  int size() const { return static_cast<int>(ranks.size()); }
};

class GroupEnd {
 public:
  virtual ~GroupEnd() = default;
  virtual void all_reduce(DType dtype, std::byte* values, int64_t elements) = 0;
  virtual void reduce_scatter(DType dtype, std::byte* values, int64_t elements) = 0;
  virtual void all_gather(DType dtype, std::byte* values, int64_t elements) = 0;
  virtual void all_to_all(std::span<const std::span<const std::byte>> send,
                          std::span<const std::span<std::byte>> receive) = 0;
  virtual void broadcast(int from_member, std::span<std::byte> bytes) = 0;
  virtual void barrier() = 0;
};

}  // namespace strata

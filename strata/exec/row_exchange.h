// SPDX-License-Identifier: Apache-2.0
// Rows of an activation change hands: from ranks that share them in one way to ranks that share them in another, each
// getting what it needs from one of those that have it.
#pragma once

#include <span>
#include <vector>

#include "strata/comm/comm.h"
#include "strata/spec/token_split.h"

namespace strata {

// What a rank has of an activation: its tokens, and of every block of columns one of `column_parts` equal parts.
struct Holding {
  TokenShare tokens;
  int64_t column_part = 0;
  int64_t column_parts = 1;
  bool operator==(const Holding&) const = default;
};

struct RowExchange {
  std::vector<Holding> from, to;     // by member of the group
  std::span<const int64_t> lengths;  // of the micro-batch's sequences over all ranks of the stage
  int64_t samples = 0;               // of a full micro-batch
  std::vector<int64_t> block_bytes;  // of a whole row
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::span<std::byte> scratch;  // source's and target's bytes; unused where what goes to a rank lies together
};

// Called by all members; complete on return.
void exchange_rows(Comm& comm, const Group& group, const RowExchange& exchange);
// Where all that `member` is to have it has: nobody else takes part.
void copy_rows(const RowExchange& exchange, int member);

}  // namespace strata

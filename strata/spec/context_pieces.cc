// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/context_pieces.h"

#include <algorithm>

namespace strata {
namespace {

TokenRange piece(int64_t length, int64_t pieces, int64_t index) {
  const int64_t least = length / pieces, longer = length % pieces;
  return {index * least + std::min(index, longer), least + (index < longer ? 1 : 0)};
}

}  // namespace

std::array<TokenRange, 2> context_pieces(int64_t length, int64_t ranks, int64_t rank) {
  if (ranks == 1) return {TokenRange{0, length}, TokenRange{length, 0}};
  return {piece(length, 2 * ranks, rank), piece(length, 2 * ranks, 2 * ranks - 1 - rank)};
}

int64_t context_part(int64_t length, int64_t ranks, int64_t rank) {
  const auto [first, second] = context_pieces(length, ranks, rank);
  return first.count + second.count;
}

int64_t largest_context_part(int64_t length, int64_t ranks) { return (length + ranks - 1) / ranks; }

void set_pieces(MicroBatch& batch, int64_t index, int64_t length) {
  for (int64_t rank = 0; rank < batch.context_ranks; ++rank) {
    const ContextPart part = batch.part_of(rank);
    int64_t place = 2 * index;
    for (const TokenRange& range : context_pieces(length, batch.context_ranks, rank)) {
      part.positions[static_cast<size_t>(place)] = static_cast<int32_t>(range.begin);
      part.offsets[static_cast<size_t>(place + 1)] =
          part.offsets[static_cast<size_t>(place)] + static_cast<int32_t>(range.count);
      ++place;
    }
  }
}

}  // namespace strata

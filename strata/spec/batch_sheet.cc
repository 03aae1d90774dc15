// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/batch_sheet.h"

#include <algorithm>

#include "strata/base/error.h"

namespace strata {
namespace {

constexpr int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t piece_positions(const BatchCapacity& capacity, int64_t sequences) {
  return capacity.context_ranks == 1 ? 0 : capacity.context_ranks * 2 * sequences;
}

int64_t piece_offsets(const BatchCapacity& capacity, int64_t sequences) {
  return capacity.context_ranks == 1 ? 0 : capacity.context_ranks * (2 * sequences + 1);
}

}  // namespace

std::span<const int64_t> BatchSheet::lengths_of(int index) const {
  const auto present = static_cast<int64_t>(sequence_lengths.size());
  const int64_t begin = std::min(index * stage_samples, present), end = std::min(begin + stage_samples, present);
  return std::span(sequence_lengths).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

int64_t micro_batch_bytes(const BatchCapacity& capacity) {
  return 3 * aligned(4 * capacity.tokens) + aligned(8 * capacity.tokens) + aligned(4 * (capacity.sequences + 1)) +
         aligned(4 * piece_offsets(capacity, capacity.sequences)) +
         aligned(4 * piece_positions(capacity, capacity.sequences));
}

MicroBatchStorage::MicroBatchStorage(std::byte* memory, const BatchCapacity& capacity)
    : memory_(memory), capacity_(capacity) {}

MicroBatch MicroBatchStorage::resize(int64_t num_tokens, int64_t num_sequences) const {
  STRATA_CHECK(num_tokens <= capacity_.tokens && num_sequences <= capacity_.sequences,
               "{} tokens in {} sequences exceed the capacity of {} tokens, {} sequences", num_tokens, num_sequences,
               capacity_.tokens, capacity_.sequences);
  const auto tokens = static_cast<size_t>(num_tokens);
  std::byte* next = memory_;
  const auto take = [&next](int64_t bytes) {
    std::byte* here = next;
    next += aligned(bytes);
    return here;
  };
  MicroBatch batch;
  batch.context_ranks = capacity_.context_ranks;
  batch.ids = {reinterpret_cast<int32_t*>(take(4 * capacity_.tokens)), tokens};
  batch.targets = {reinterpret_cast<int32_t*>(take(4 * capacity_.tokens)), tokens};
  batch.positions = {reinterpret_cast<int32_t*>(take(4 * capacity_.tokens)), tokens};
  batch.token_indices = {reinterpret_cast<int64_t*>(take(8 * capacity_.tokens)), tokens};
  batch.offsets = {reinterpret_cast<int32_t*>(take(4 * (capacity_.sequences + 1))),
                   static_cast<size_t>(num_sequences) + 1};
  batch.piece_offsets = {reinterpret_cast<int32_t*>(take(4 * piece_offsets(capacity_, capacity_.sequences))),
                         static_cast<size_t>(piece_offsets(capacity_, num_sequences))};
  batch.piece_positions = {reinterpret_cast<int32_t*>(take(4 * piece_positions(capacity_, capacity_.sequences))),
                           static_cast<size_t>(piece_positions(capacity_, num_sequences))};
  if (batch.context_ranks > 1)
    for (int64_t rank = 0; rank < batch.context_ranks; ++rank) batch.part_of(rank).offsets[0] = 0;
  return batch;
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/batch_sheet.h"

#include "strata/base/error.h"

namespace strata {
namespace {

constexpr int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

int64_t micro_batch_bytes(int64_t capacity_tokens, int64_t capacity_sequences) {
  return 3 * aligned(4 * capacity_tokens) + aligned(8 * capacity_tokens) + aligned(4 * (capacity_sequences + 1));
}

MicroBatchStorage::MicroBatchStorage(std::byte* memory, int64_t capacity_tokens, int64_t capacity_sequences)
    : memory_(memory), capacity_tokens_(capacity_tokens), capacity_sequences_(capacity_sequences) {}

MicroBatch MicroBatchStorage::resize(int64_t num_tokens, int64_t num_sequences) const {
  STRATA_CHECK(num_tokens <= capacity_tokens_ && num_sequences <= capacity_sequences_,
               "{} tokens in {} sequences exceed the capacity of {} tokens, {} sequences", num_tokens, num_sequences,
               capacity_tokens_, capacity_sequences_);
  const auto tokens = static_cast<size_t>(num_tokens);
  std::byte* next = memory_;
  const auto take = [&next](int64_t bytes) {
    std::byte* here = next;
    next += aligned(bytes);
    return here;
  };
  MicroBatch batch;
  batch.ids = {reinterpret_cast<int32_t*>(take(4 * capacity_tokens_)), tokens};
  batch.targets = {reinterpret_cast<int32_t*>(take(4 * capacity_tokens_)), tokens};
  batch.positions = {reinterpret_cast<int32_t*>(take(4 * capacity_tokens_)), tokens};
  batch.token_indices = {reinterpret_cast<int64_t*>(take(8 * capacity_tokens_)), tokens};
  batch.offsets = {reinterpret_cast<int32_t*>(take(4 * (capacity_sequences_ + 1))),
                   static_cast<size_t>(num_sequences) + 1};
  return batch;
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// What one step works on, equal on all ranks and derived from (seed, step): extents, offsets and token indices of every
// micro-batch. The views point into memory planned at the capacities of the plan; kernels read the extents.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

// One micro-batch: packed sequences, no padding. All spans but `offsets` have one entry per token.
struct MicroBatch {
  std::span<int32_t> ids;
  std::span<int32_t> targets;        // the next token; -1: not counted
  std::span<int32_t> positions;      // inside the sequence
  std::span<int64_t> token_indices;  // sample's index in the global batch * seq + position: the counter of dropout
  std::span<int32_t> offsets;        // (sequences + 1): first token of each sequence, then the number of tokens
  int64_t counted = 0;               // targets >= 0

  int64_t num_tokens() const { return static_cast<int64_t>(ids.size()); }
  int64_t num_sequences() const { return offsets.empty() ? 0 : static_cast<int64_t>(offsets.size()) - 1; }
};

struct BatchSheet {
  std::vector<MicroBatch> micro_batches;
  std::vector<int64_t> sequence_lengths;  // of the global batch
  int64_t num_tokens = 0;                 // of the global batch
  int64_t counted = 0;                    // of the global batch: normalises the loss
};

// Memory of one micro-batch's arrays at capacity, and a view of it there. `memory` holds micro_batch_bytes(...) bytes,
// 64-byte aligned. The view has zero extents and full capacity: whoever fills it sets the spans' sizes with
// MicroBatchStorage below.
int64_t micro_batch_bytes(int64_t capacity_tokens, int64_t capacity_sequences);

// Where a micro-batch's arrays live; `resize` gives the view for the wanted extents and refuses more than the capacity.
class MicroBatchStorage {
 public:
  MicroBatchStorage(std::byte* memory, int64_t capacity_tokens, int64_t capacity_sequences);
  MicroBatch resize(int64_t num_tokens, int64_t num_sequences) const;

 private:
  std::byte* memory_;
  int64_t capacity_tokens_;
  int64_t capacity_sequences_;
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// What one step works on, equal on all ranks and derived from (seed, step): extents, offsets and token indices of every
// micro-batch. The views point into memory planned at the capacities of the plan; kernels read the extents.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

// The tokens that one rank of a context-parallel group has of a micro-batch: two pieces of every sequence
// (context_pieces.h).
struct ContextPart {
  std::span<int32_t> offsets;    // (2 * sequences + 1): first token of each piece, then the number of tokens
  std::span<int32_t> positions;  // (2 * sequences): first position of each piece inside its sequence
  int64_t num_tokens() const { return offsets.empty() ? 0 : offsets.back(); }
};

// One micro-batch of one rank: packed sequences or, with context parallelism, this rank's pieces of them; no padding.
// Spans have one entry per token but for offsets and pieces.
struct MicroBatch {
  std::span<int32_t> ids;
  std::span<int32_t> targets;        // the next token; -1: not counted
  std::span<int32_t> positions;      // inside the sequence
  std::span<int64_t> token_indices;  // sample's index in the global batch * seq + position: the counter of dropout
  std::span<int32_t> offsets;        // (sequences + 1): first token here of each sequence, then the number of tokens
  int64_t context_ranks = 1;         // that share the sequences
  std::span<int32_t> piece_offsets;  // of all context ranks one after the other: part_of(); empty for one
  std::span<int32_t> piece_positions;
  int64_t counted = 0;  // targets >= 0

  int64_t num_tokens() const { return static_cast<int64_t>(ids.size()); }
  int64_t num_sequences() const { return offsets.empty() ? 0 : static_cast<int64_t>(offsets.size()) - 1; }
  ContextPart part_of(int64_t context_rank) const {
    const auto pieces = static_cast<size_t>(2 * num_sequences()), rank = static_cast<size_t>(context_rank);
    return {piece_offsets.subspan(rank * (pieces + 1), pieces + 1), piece_positions.subspan(rank * pieces, pieces)};
  }
};

struct BatchSheet {
  // This rank's micro-batches of the step, once for every way in which layers share them out (token_split.h).
  std::vector<MicroBatch> micro_batches;
  int64_t num_splits = 1;
  int64_t stage_samples = 0;              // of a whole micro-batch, over all ranks of a stage
  std::vector<int64_t> sequence_lengths;  // of the global batch
  int64_t num_tokens = 0;                 // of the global batch
  int64_t counted = 0;                    // of the global batch: normalises the loss

  int64_t num_micro_batches() const { return static_cast<int64_t>(micro_batches.size()) / num_splits; }
  const MicroBatch& micro_batch(int split, int index) const {
    return micro_batches[static_cast<size_t>(split * num_micro_batches() + index)];
  }
  // Of the sequences of a micro-batch over all ranks of a stage.
  std::span<const int64_t> lengths_of(int index) const;
};

struct BatchCapacity {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t context_ranks = 1;
};

// Memory of one micro-batch's arrays at capacity, and a view of it there. `memory` holds micro_batch_bytes(...) bytes,
// 64-byte aligned. The view has zero extents and full capacity: whoever fills it sets the spans' sizes with
// MicroBatchStorage below.
int64_t micro_batch_bytes(const BatchCapacity& capacity);

// Where a micro-batch's arrays live; `resize` gives the view for the wanted extents and refuses more than the capacity.
class MicroBatchStorage {
 public:
  MicroBatchStorage(std::byte* memory, const BatchCapacity& capacity);
  MicroBatch resize(int64_t num_tokens, int64_t num_sequences) const;

 private:
  std::byte* memory_;
  BatchCapacity capacity_;
};

}  // namespace strata

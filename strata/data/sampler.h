// SPDX-License-Identifier: Apache-2.0
// Which sample comes when, and the batch sheet of a step. The samples of a run are one endless sequence: the
// concatenation of epochs, each a permutation keyed by (seed, epoch). Any place of it is computed directly, so the only
// state is the number of samples seen. Batches run across epoch borders; only the last batch of a run or of an
// evaluation may be short. Pure but for reading the dataset; no allocation after the first fill of a sheet.
#pragma once

#include <cstdint>
#include <span>

#include "strata/data/dataset.h"
#include "strata/spec/batch_sheet.h"
#include "strata/spec/token_split.h"

namespace strata {

class SampleOrder {
 public:
  static SampleOrder shuffled(int64_t num_samples, uint64_t seed) { return {num_samples, seed, true}; }
  // 0 .. num_samples - 1, once: evaluation.
  static SampleOrder sequential(int64_t num_samples) { return {num_samples, 0, false}; }

  // The sample at a place of the run.
  int64_t at(int64_t place) const;

 private:
  SampleOrder(int64_t num_samples, uint64_t seed, bool shuffle)
      : num_samples_(num_samples), seed_(seed), shuffle_(shuffle) {}
  int64_t num_samples_;
  uint64_t seed_;
  bool shuffle_;
};

struct BatchExtent {
  int64_t first_place = 0;  // in the sample order: the samples seen before this batch
  int64_t num_samples = 0;  // the global batch or what is left of the run; <= micro_batch * accumulation * data_ranks
  int64_t micro_batch = 0;
  int64_t accumulation = 0;
  int64_t data_rank = 0;  // which of the data-parallel ranks this is
  int64_t data_ranks = 1;
  int64_t context_rank = 0;  // which of the ranks that share the tokens of every sequence
  int64_t context_ranks = 1;
};

// The extents of a batch for all of a plan's token_splits(), as they are on a rank.
std::vector<BatchExtent> batch_extents(const Plan& plan, int rank, int64_t first_place, int64_t num_samples,
                                       int64_t accumulation);

// Fills, for every extent, one micro-batch per storage (`accumulation` of them, each for micro_batch sequences and this
// rank's part of their tokens). Extents differ in how ranks share the batch. The samples are dealt out in order, a
// micro-batch to every data-parallel rank in turn; in a short batch the last micro-batches have fewer or no sequences.
// Totals are those of the global batch, equal on all ranks.
void fill_batch_sheet(const Dataset& dataset, const SampleOrder& order, std::span<const BatchExtent> extents,
                      std::span<const MicroBatchStorage> storages, BatchSheet& sheet);

}  // namespace strata

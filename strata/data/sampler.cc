// SPDX-License-Identifier: Apache-2.0
#include "strata/data/sampler.h"

#include <algorithm>
#include <numeric>

#include "strata/base/error.h"
#include "strata/base/random.h"
#include "strata/spec/context_pieces.h"

namespace strata {
namespace {

// This rank's tokens of a sample, which is number `number` of the global batch, from place `begin` on. Returns the
// place behind them.
size_t fill_sequence(const Dataset& dataset, int64_t sample, int64_t number, const BatchExtent& extent, size_t begin,
                     MicroBatch& batch) {
  const int64_t length = dataset.sample_tokens(sample);
  for (const TokenRange& piece : context_pieces(length, extent.context_ranks, extent.context_rank)) {
    if (piece.count == 0) continue;
    const auto count = static_cast<size_t>(piece.count);
    dataset.read_piece(sample, piece.begin, batch.ids.subspan(begin, count), batch.targets.subspan(begin, count));
    const auto positions = batch.positions.subspan(begin, count);
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(piece.begin));
    const auto indices = batch.token_indices.subspan(begin, count);
    std::iota(indices.begin(), indices.end(), number * dataset.seq() + piece.begin);
    begin += count;
  }
  return begin;
}

// Samples [first, first + count) of the global batch.
MicroBatch fill_micro_batch(const Dataset& dataset, const SampleOrder& order, const BatchExtent& extent, int64_t first,
                            int64_t count, const MicroBatchStorage& storage) {
  const auto sample = [&](int64_t i) { return order.at(extent.first_place + first + i); };
  int64_t num_tokens = 0;
  for (int64_t i = 0; i < count; ++i)
    num_tokens += context_part(dataset.sample_tokens(sample(i)), extent.context_ranks, extent.context_rank);
  MicroBatch batch = storage.resize(num_tokens, count);
  STRATA_CHECK(batch.context_ranks == extent.context_ranks, "storage for {} context ranks, {} share the sequences",
               batch.context_ranks, extent.context_ranks);
  size_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (extent.context_ranks > 1) set_pieces(batch, i, dataset.sample_tokens(sample(i)));
    batch.offsets[static_cast<size_t>(i)] = static_cast<int32_t>(begin);
    begin = fill_sequence(dataset, sample(i), first + i, extent, begin, batch);
  }
  batch.offsets[static_cast<size_t>(count)] = static_cast<int32_t>(begin);
  batch.counted = num_tokens;
  return batch;
}

}  // namespace

int64_t SampleOrder::at(int64_t place) const {
  STRATA_CHECK(place >= 0 && (shuffle_ || place < num_samples_), "place {} of {} samples", place, num_samples_);
  if (!shuffle_) return place;
  const int64_t epoch = place / num_samples_;
  return static_cast<int64_t>(permute(static_cast<uint64_t>(place % num_samples_), static_cast<uint64_t>(num_samples_),
                                      mix_key(seed_, static_cast<uint64_t>(epoch))));
}

void fill_batch_sheet(const Dataset& dataset, const SampleOrder& order, const BatchExtent& extent,
                      std::span<const MicroBatchStorage> storages, BatchSheet& sheet) {
  const int64_t capacity = extent.micro_batch * extent.accumulation * extent.data_ranks;
  STRATA_CHECK(extent.num_samples >= 0 && extent.num_samples <= capacity,
               "{} samples in {} micro-batches of {} on {} ranks", extent.num_samples, extent.accumulation,
               extent.micro_batch, extent.data_ranks);
  STRATA_CHECK(static_cast<int64_t>(storages.size()) == extent.accumulation, "{} storages for {} micro-batches",
               storages.size(), extent.accumulation);
  sheet.micro_batches.resize(storages.size());
  for (int64_t i = 0; i < extent.accumulation; ++i) {
    const int64_t first = std::min((i * extent.data_ranks + extent.data_rank) * extent.micro_batch, extent.num_samples);
    const int64_t count = std::min(extent.micro_batch, extent.num_samples - first);
    sheet.micro_batches[static_cast<size_t>(i)] =
        fill_micro_batch(dataset, order, extent, first, count, storages[static_cast<size_t>(i)]);
  }
  sheet.sequence_lengths.resize(static_cast<size_t>(extent.num_samples));
  for (int64_t i = 0; i < extent.num_samples; ++i)
    sheet.sequence_lengths[static_cast<size_t>(i)] = dataset.sample_tokens(order.at(extent.first_place + i));
  sheet.num_tokens = std::accumulate(sheet.sequence_lengths.begin(), sheet.sequence_lengths.end(), int64_t{0});
  sheet.counted = sheet.num_tokens;  // every input of a sample has a target
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/data/sampler.h"

#include <algorithm>
#include <numeric>

#include "strata/base/error.h"
#include "strata/base/random.h"

namespace strata {
namespace {

// Samples [first, first + count) of the global batch, the run's from `first_place` on.
MicroBatch fill_micro_batch(const Dataset& dataset, const SampleOrder& order, int64_t first_place, int64_t first,
                            int64_t count, const MicroBatchStorage& storage) {
  int64_t num_tokens = 0;
  for (int64_t i = 0; i < count; ++i) num_tokens += dataset.sample_tokens(order.at(first_place + first + i));
  MicroBatch batch = storage.resize(num_tokens, count);
  size_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = order.at(first_place + first + i);
    const auto length = static_cast<size_t>(dataset.sample_tokens(sample));
    dataset.read_sample(sample, batch.ids.subspan(begin, length), batch.targets.subspan(begin, length));
    const auto positions = batch.positions.subspan(begin, length);
    std::iota(positions.begin(), positions.end(), 0);
    const auto indices = batch.token_indices.subspan(begin, length);
    std::iota(indices.begin(), indices.end(), (first + i) * dataset.seq());
    batch.offsets[static_cast<size_t>(i)] = static_cast<int32_t>(begin);
    begin += length;
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
        fill_micro_batch(dataset, order, extent.first_place, first, count, storages[static_cast<size_t>(i)]);
  }
  sheet.sequence_lengths.resize(static_cast<size_t>(extent.num_samples));
  for (int64_t i = 0; i < extent.num_samples; ++i)
    sheet.sequence_lengths[static_cast<size_t>(i)] = dataset.sample_tokens(order.at(extent.first_place + i));
  sheet.num_tokens = std::accumulate(sheet.sequence_lengths.begin(), sheet.sequence_lengths.end(), int64_t{0});
  sheet.counted = sheet.num_tokens;  // every input of a sample has a target
}

}  // namespace strata

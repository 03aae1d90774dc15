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

void fill_micro_batches(const Dataset& dataset, const SampleOrder& order, const BatchExtent& extent,
                        std::span<const MicroBatchStorage> storages, std::vector<MicroBatch>::iterator filled) {
  const int64_t capacity = extent.micro_batch * extent.accumulation * extent.data_ranks;
  STRATA_CHECK(extent.num_samples >= 0 && extent.num_samples <= capacity,
               "{} samples in {} micro-batches of {} on {} ranks", extent.num_samples, extent.accumulation,
               extent.micro_batch, extent.data_ranks);
  for (int64_t i = 0; i < extent.accumulation; ++i, ++filled) {
    const int64_t first = std::min((i * extent.data_ranks + extent.data_rank) * extent.micro_batch, extent.num_samples);
    const int64_t count = std::min(extent.micro_batch, extent.num_samples - first);
    *filled = fill_micro_batch(dataset, order, extent, first, count, storages[static_cast<size_t>(i)]);
  }
}

}  // namespace

int64_t SampleOrder::at(int64_t place) const {
  STRATA_CHECK(place >= 0 && (shuffle_ || place < num_samples_), "place {} of {} samples", place, num_samples_);
  if (!shuffle_) return place;
  const int64_t epoch = place / num_samples_;
  return static_cast<int64_t>(permute(static_cast<uint64_t>(place % num_samples_), static_cast<uint64_t>(num_samples_),
                                      mix_key(seed_, static_cast<uint64_t>(epoch))));
}

std::vector<BatchExtent> batch_extents(const Plan& plan, int rank, int64_t first_place, int64_t num_samples,
                                       int64_t accumulation) {
  const int64_t stage_ranks = plan.num_ranks / num_stages(plan);
  std::vector<BatchExtent> extents;
  for (const TokenSplit& split : token_splits(plan)) {
    const TokenShare share = token_share(split, stage_ranks, rank % stage_ranks);
    extents.push_back({first_place, num_samples, rank_samples(plan, split), accumulation, share.data, split.dp,
                       share.context, split.cp});
  }
  return extents;
}

void fill_batch_sheet(const Dataset& dataset, const SampleOrder& order, std::span<const BatchExtent> extents,
                      std::span<const MicroBatchStorage> storages, BatchSheet& sheet) {
  const BatchExtent& any = extents.front();
  STRATA_CHECK(storages.size() == extents.size() * static_cast<size_t>(any.accumulation),
               "{} storages for {} micro-batches shared in {} ways", storages.size(), any.accumulation, extents.size());
  sheet.micro_batches.resize(storages.size());
  sheet.num_splits = static_cast<int64_t>(extents.size());
  sheet.stage_samples = any.micro_batch * any.data_ranks;
  for (size_t split = 0; split < extents.size(); ++split) {
    const auto begin = split * static_cast<size_t>(any.accumulation);
    fill_micro_batches(dataset, order, extents[split], storages.subspan(begin), sheet.micro_batches.begin() + begin);
  }
  sheet.sequence_lengths.resize(static_cast<size_t>(any.num_samples));
  for (int64_t i = 0; i < any.num_samples; ++i)
    sheet.sequence_lengths[static_cast<size_t>(i)] = dataset.sample_tokens(order.at(any.first_place + i));
  sheet.num_tokens = std::accumulate(sheet.sequence_lengths.begin(), sheet.sequence_lengths.end(), int64_t{0});
  sheet.counted = sheet.num_tokens;  // every input of a sample has a target
}

}  // namespace strata

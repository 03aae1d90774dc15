// SPDX-License-Identifier: Apache-2.0
#include "strata/data/sampler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "strata/base/testing.h"

namespace strata {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SamplerTest : public ::testing::Test {
 protected:
  TokenSet documents(const std::vector<std::vector<int32_t>>& list) {
    TokenFileWriter writer(folder_ / "tokens", 10000, 0);
    for (const auto& document : list) {
      writer.append(document);
      writer.end_document();
    }
    writer.commit(0, 0);
    std::vector<TokenFile> files;
    files.emplace_back(folder_ / "tokens", 10000);
    return TokenSet(std::move(files));
  }
  TokenSet counting(int32_t num_tokens) {
    std::vector<int32_t> ids(static_cast<size_t>(num_tokens));
    std::iota(ids.begin(), ids.end(), 0);
    return documents({ids});
  }
  TemporaryFolder folder_;
};

// Storage for `accumulation` micro-batches.
class Storages {
 public:
  Storages(int64_t accumulation, int64_t tokens, int64_t sequences, int64_t context_ranks = 1) {
    const BatchCapacity capacity{tokens, sequences, context_ranks};
    const int64_t bytes = micro_batch_bytes(capacity);
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(accumulation * bytes))));
    for (int64_t i = 0; i < accumulation; ++i) storages_.emplace_back(memory_.get() + i * bytes, capacity);
  }
  operator std::span<const MicroBatchStorage>() const { return storages_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<MicroBatchStorage> storages_;
};

void fill(const Dataset& dataset, const SampleOrder& order, const BatchExtent& extent,
          std::span<const MicroBatchStorage> storages, BatchSheet& sheet) {
  fill_batch_sheet(dataset, order, {&extent, 1}, storages, sheet);
}

std::vector<int32_t> ids_of(const Dataset& dataset, int64_t sample) {
  std::vector<int32_t> ids(static_cast<size_t>(dataset.sample_tokens(sample))), targets(ids.size());
  dataset.read_sample(sample, ids, targets);
  return ids;
}
std::vector<int32_t> targets_of(const Dataset& dataset, int64_t sample) {
  std::vector<int32_t> ids(static_cast<size_t>(dataset.sample_tokens(sample))), targets(ids.size());
  dataset.read_sample(sample, ids, targets);
  return targets;
}

TEST_F(SamplerTest, WindowsCountEveryTargetOnce) {
  for (int32_t num_tokens = 2; num_tokens < 14; ++num_tokens) {
    const Dataset dataset(counting(num_tokens), Sampling::kWindow, 4);
    std::vector<int32_t> targets;
    for (int64_t i = 0; i < dataset.num_samples(); ++i) {
      for (const int32_t id : targets_of(dataset, i)) targets.push_back(id);
      EXPECT_EQ(ids_of(dataset, i).front(), 4 * i);
    }
    std::vector<int32_t> expected(static_cast<size_t>(num_tokens) - 1);
    std::iota(expected.begin(), expected.end(), 1);
    EXPECT_EQ(targets, expected);
    EXPECT_EQ(dataset.report().targets, num_tokens - 1);
  }
}

// 10 documents, 3 longer than the limit: all counts are reported, nothing is lost (B56).
TEST_F(SamplerTest, DocumentsAreCutNotTruncated) {
  std::vector<std::vector<int32_t>> list;
  int64_t targets = 0;
  for (const int length : {5, 1, 3, 2, 6, 9, 10, 4, 5, 5}) {
    std::vector<int32_t>& document = list.emplace_back(static_cast<size_t>(length));
    std::iota(document.begin(), document.end(), static_cast<int32_t>(100 * list.size()));
    targets += length - 1;
  }
  const Dataset dataset(documents(list), Sampling::kDocument, 4);
  EXPECT_EQ(dataset.report().documents, 10);
  EXPECT_EQ(dataset.report().whole, 6);
  EXPECT_EQ(dataset.report().cut, 3);
  EXPECT_EQ(dataset.report().dropped, 1);
  EXPECT_EQ(dataset.report().targets, targets);
  EXPECT_EQ(dataset.num_samples(), 6 + 2 + 2 + 3);
  int64_t counted = 0;
  for (int64_t i = 0; i < dataset.num_samples(); ++i) counted += dataset.sample_tokens(i);
  EXPECT_EQ(counted, targets);
  // The document of 6: inputs 500..504 in pieces of 4 and 1, targets 501..505.
  EXPECT_THAT(ids_of(dataset, 3), ElementsAre(500, 501, 502, 503));
  EXPECT_THAT(ids_of(dataset, 4), ElementsAre(504));
  EXPECT_THAT(targets_of(dataset, 4), ElementsAre(505));
}

TEST_F(SamplerTest, NothingToPredictIsRefused) {
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { Dataset(counting(1), Sampling::kWindow, 4); }),
              HasSubstr("1 tokens in 1 documents hold nothing to predict"));
  EXPECT_THAT(error_message(ErrorKind::kBadInput,
                            [&] {
                              Dataset(documents({{1}, {2}}), Sampling::kDocument, 4);
                            }),
              HasSubstr("of one document"));
}

TEST_F(SamplerTest, FingerprintFollowsWhatIsSampled) {
  const uint64_t window = Dataset(counting(20), Sampling::kWindow, 4).fingerprint();
  EXPECT_EQ(window, Dataset(counting(20), Sampling::kWindow, 4).fingerprint());
  EXPECT_NE(window, Dataset(counting(20), Sampling::kWindow, 5).fingerprint());
  EXPECT_NE(window, Dataset(counting(20), Sampling::kDocument, 4).fingerprint());
  EXPECT_NE(window, Dataset(counting(21), Sampling::kWindow, 4).fingerprint());
}

TEST(SampleOrder, EveryEpochIsAnotherPermutation) {
  const SampleOrder order = SampleOrder::shuffled(103, 1);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t>& samples = epochs.emplace_back();
    for (int64_t i = 0; i < 103; ++i) samples.push_back(order.at(epoch * 103 + i));
    EXPECT_EQ(std::set<int64_t>(samples.begin(), samples.end()).size(), 103u);
    EXPECT_EQ(*std::max_element(samples.begin(), samples.end()), 102);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(order.at(0) * 103 + order.at(1),
            SampleOrder::shuffled(103, 2).at(0) * 103 + SampleOrder::shuffled(103, 2).at(1));
}

// 7 samples, 3 epochs, stopped in epoch 2: the order is that of the run that was not stopped (B47).
TEST(SampleOrder, ResumeContinuesTheOrder) {
  std::vector<int64_t> whole, resumed;
  const SampleOrder order = SampleOrder::shuffled(7, 5);
  for (int64_t place = 0; place < 21; ++place) whole.push_back(order.at(place));
  for (int64_t place = 0; place < 10; ++place) resumed.push_back(order.at(place));
  const SampleOrder again = SampleOrder::shuffled(7, 5);
  for (int64_t place = 10; place < 21; ++place) resumed.push_back(again.at(place));
  EXPECT_EQ(resumed, whole);
  EXPECT_FALSE(std::equal(whole.begin(), whole.begin() + 7, whole.begin() + 7)) << "epoch 1 repeats epoch 0";
}

TEST_F(SamplerTest, SheetDescribesItsTokens) {
  const Dataset dataset(counting(19), Sampling::kWindow, 4);  // 18 targets: samples of 4, 4, 4, 4, 2
  const Storages storages(2, 8, 2);
  BatchSheet sheet;
  fill(dataset, SampleOrder::sequential(5), {2, 3, 2, 2}, storages, sheet);
  ASSERT_EQ(sheet.micro_batches.size(), 2u);
  const MicroBatch& first = sheet.micro_batches[0];
  EXPECT_THAT(first.ids, ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(first.targets, ElementsAre(9, 10, 11, 12, 13, 14, 15, 16));
  EXPECT_THAT(first.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(first.token_indices, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(first.offsets, ElementsAre(0, 4, 8));
  const MicroBatch& second = sheet.micro_batches[1];
  EXPECT_THAT(second.ids, ElementsAre(16, 17));
  EXPECT_THAT(second.token_indices, ElementsAre(8, 9));
  EXPECT_THAT(second.offsets, ElementsAre(0, 2));
  EXPECT_EQ(sheet.num_tokens, 10);
  EXPECT_EQ(sheet.counted, 10);
  EXPECT_EQ(first.counted + second.counted, 10);
}

// Two ranks share every sequence: pieces 0 and 3 of it, and 1 and 2. Totals are those of the global batch.
TEST_F(SamplerTest, ContextRanksShareEverySequence) {
  const Dataset dataset(counting(19), Sampling::kWindow, 7);  // 18 targets: samples of 7, 7, 4
  BatchSheet sheet;
  const Storages first(1, 8, 2, 2), second(1, 8, 2, 2);
  fill(dataset, SampleOrder::sequential(3), {1, 2, 2, 1, 0, 1, 0, 2}, first, sheet);
  EXPECT_THAT(sheet.micro_batches[0].ids, ElementsAre(7, 8, 13, 14, 17));
  EXPECT_THAT(sheet.micro_batches[0].targets, ElementsAre(8, 9, 14, 15, 18));
  EXPECT_THAT(sheet.micro_batches[0].positions, ElementsAre(0, 1, 6, 0, 3));
  EXPECT_THAT(sheet.micro_batches[0].token_indices, ElementsAre(0, 1, 6, 7, 10));
  EXPECT_THAT(sheet.micro_batches[0].offsets, ElementsAre(0, 3, 5));
  EXPECT_THAT(sheet.micro_batches[0].part_of(1).offsets, ElementsAre(0, 2, 4, 5, 6));
  EXPECT_EQ(sheet.counted, 11);
  fill(dataset, SampleOrder::sequential(3), {1, 2, 2, 1, 0, 1, 1, 2}, second, sheet);
  EXPECT_THAT(sheet.micro_batches[0].ids, ElementsAre(9, 10, 11, 12, 15, 16));
  EXPECT_THAT(sheet.micro_batches[0].targets, ElementsAre(10, 11, 12, 13, 16, 17));
  EXPECT_THAT(sheet.micro_batches[0].part_of(0).positions, ElementsAre(0, 6, 0, 3));
  EXPECT_EQ(sheet.counted, 11);
}

// A sequence of one token: the second rank has none.
TEST_F(SamplerTest, ContextRanksWithoutTokens) {
  const Dataset dataset(counting(2), Sampling::kWindow, 7);
  BatchSheet sheet;
  const Storages storages(1, 4, 1, 2);
  fill(dataset, SampleOrder::sequential(1), {0, 1, 1, 1, 0, 1, 1, 2}, storages, sheet);
  EXPECT_EQ(sheet.micro_batches[0].num_tokens(), 0);
  EXPECT_EQ(sheet.micro_batches[0].num_sequences(), 1);
  EXPECT_EQ(sheet.counted, 1);
}

// The token ids of an epoch's samples as each data-parallel rank of four gets them, in batches of 12; the last batch
// has what is left.
std::vector<std::vector<int32_t>> epoch_by_rank(const Dataset& dataset, int64_t context_rank, int64_t context_ranks) {
  const SampleOrder order = SampleOrder::shuffled(dataset.num_samples(), 5);
  std::vector<std::vector<int32_t>> ranks(4);
  for (int64_t rank = 0; rank < 4; ++rank)
    for (int64_t first = 0; first < dataset.num_samples(); first += 12) {
      const Storages storages(3, 4, 1, context_ranks);
      BatchSheet sheet;
      fill(dataset, order,
           {first, std::min<int64_t>(12, dataset.num_samples() - first), 1, 3, rank, 4, context_rank, context_ranks},
           storages, sheet);
      for (const MicroBatch& batch : sheet.micro_batches)
        ranks[static_cast<size_t>(rank)].insert(ranks[static_cast<size_t>(rank)].end(), batch.ids.begin(),
                                                batch.ids.end());
    }
  return ranks;
}

// B48: 103 samples over four ranks: no token twice, none left out; context-parallel ranks have parts of the same ones.
TEST_F(SamplerTest, DataRanksShareAnEpoch) {
  const Dataset dataset(counting(103 * 4 + 1), Sampling::kWindow, 4);
  ASSERT_EQ(dataset.num_samples(), 103);
  const std::vector<std::vector<int32_t>> ranks = epoch_by_rank(dataset, 0, 1);
  std::vector<int32_t> all;
  for (size_t rank = 0; rank < 4; ++rank) {
    all.insert(all.end(), ranks[rank].begin(), ranks[rank].end());
    EXPECT_GE(ranks[rank].size(), 4u * 24);
    std::vector<int32_t> parts;
    for (int64_t context = 0; context < 2; ++context) {
      const std::vector<int32_t> part = epoch_by_rank(dataset, context, 2)[rank];
      EXPECT_EQ(part.size(), ranks[rank].size() / 2);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_THAT(parts, ::testing::UnorderedElementsAreArray(ranks[rank]));
  }
  std::sort(all.begin(), all.end());
  std::vector<int32_t> wanted(103 * 4);
  std::iota(wanted.begin(), wanted.end(), 0);
  EXPECT_EQ(all, wanted);
}

// Which token has which index does not depend on the micro-batch: dropout is keyed by it.
TEST_F(SamplerTest, AccumulationDoesNotChangeTheBatch) {
  const Dataset dataset(counting(101), Sampling::kWindow, 4);
  const SampleOrder order = SampleOrder::shuffled(dataset.num_samples(), 3);
  std::vector<std::vector<int64_t>> seen;
  for (const int64_t micro : {1, 2, 4, 8}) {
    const Storages storages(8 / micro, 4 * micro, micro);
    BatchSheet sheet;
    fill(dataset, order, {16, 8, micro, 8 / micro}, storages, sheet);
    std::vector<int64_t>& flat = seen.emplace_back();
    for (const MicroBatch& batch : sheet.micro_batches)
      for (size_t i = 0; i < batch.ids.size(); ++i) {
        flat.push_back(batch.ids[i]);
        flat.push_back(batch.token_indices[i]);
      }
  }
  EXPECT_THAT(seen, Each(seen[0]));
  EXPECT_EQ(seen[0].size(), 2u * 32);
}

// 10 samples, 4 micro-batches of 1: batches run across the epoch border, the last one of the run is short (B8).
TEST_F(SamplerTest, OnlyTheLastBatchOfARunIsShort) {
  const Dataset dataset(counting(41), Sampling::kWindow, 4);
  ASSERT_EQ(dataset.num_samples(), 10);
  const SampleOrder order = SampleOrder::shuffled(10, 1);
  const Storages storages(4, 4, 1);
  BatchSheet sheet;
  std::vector<int64_t> counted, sequences_of_last;
  const auto run = [&](int64_t num_samples) {
    counted.clear();
    for (int64_t seen = 0; seen < num_samples; seen += 4) {
      fill(dataset, order, {seen, std::min<int64_t>(4, num_samples - seen), 1, 4}, storages, sheet);
      counted.push_back(sheet.counted);
    }
    sequences_of_last.clear();
    for (const MicroBatch& batch : sheet.micro_batches) sequences_of_last.push_back(batch.num_sequences());
  };
  run(20);  // 2 epochs
  EXPECT_THAT(counted, ElementsAre(16, 16, 16, 16, 16));
  run(10);
  EXPECT_THAT(counted, ElementsAre(16, 16, 8));
  EXPECT_THAT(sequences_of_last, ElementsAre(1, 1, 0, 0));
  run(11);
  EXPECT_THAT(sequences_of_last, ElementsAre(1, 1, 1, 0));
}

// 10 validation documents in batches of 4 (B50) and of any other size (B49): each once, in order.
TEST_F(SamplerTest, EvaluationKeepsTheLastBatch) {
  std::vector<std::vector<int32_t>> list;
  for (int32_t i = 0; i < 10; ++i) list.push_back({i, 50, 60});
  const Dataset dataset(documents(list), Sampling::kDocument, 4);
  const SampleOrder order = SampleOrder::sequential(10);
  for (const int64_t micro : {1, 3, 4, 10, 16}) {
    const Storages storages(1, 4 * micro, micro);
    BatchSheet sheet;
    std::vector<int32_t> firsts;
    for (int64_t seen = 0; seen < 10; seen += micro) {
      fill(dataset, order, {seen, std::min(micro, 10 - seen), micro, 1}, storages, sheet);
      for (int64_t i = 0; i < sheet.micro_batches[0].num_sequences(); ++i)
        firsts.push_back(
            sheet.micro_batches[0].ids[static_cast<size_t>(sheet.micro_batches[0].offsets[static_cast<size_t>(i)])]);
    }
    EXPECT_THAT(firsts, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  }
}

TEST_F(SamplerTest, MoreSamplesThanTheBatchHoldsIsABug) {
  const Dataset dataset(counting(41), Sampling::kWindow, 4);
  const Storages storages(2, 8, 2);
  BatchSheet sheet;
  EXPECT_DEATH(fill(dataset, SampleOrder::sequential(10), {0, 5, 2, 2}, storages, sheet), "5 samples in 2");
  EXPECT_DEATH(fill(dataset, SampleOrder::sequential(10), {8, 4, 2, 2}, storages, sheet), "place 10 of 10");
}

}  // namespace
}  // namespace strata

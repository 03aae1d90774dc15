// SPDX-License-Identifier: Apache-2.0
// Time to fill the batch sheet of one step, per 2048 tokens, from a token file in the page cache.
// Run: build/bench/batch_sheet_bench
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>

#include "strata/data/sampler.h"

namespace strata {
namespace {

constexpr int64_t kSeq = 256;
constexpr int64_t kMicroBatch = 8;

Dataset make_dataset(int64_t vocab, Sampling sampling) {
  const auto path = std::filesystem::temp_directory_path() / "strata_batch_sheet_bench.tokens";
  TokenFileWriter writer(path, vocab, 0);
  std::vector<int32_t> document(500);
  for (int i = 0; i < 20000; ++i) {
    for (size_t j = 0; j < document.size(); ++j)
      document[j] = static_cast<int32_t>((i * 31 + static_cast<int>(j) * 7) % vocab);
    writer.append(document);
    writer.end_document();
  }
  writer.commit(0, 0);
  std::vector<TokenFile> files;
  files.emplace_back(path, vocab);
  std::filesystem::remove(path);  // the mapping keeps it
  return Dataset(TokenSet(std::move(files)), sampling, kSeq);
}

void fill(benchmark::State& state, int64_t vocab, Sampling sampling) {
  const Dataset dataset = make_dataset(vocab, sampling);
  const SampleOrder order = SampleOrder::shuffled(dataset.num_samples(), 1);
  const BatchCapacity capacity{kSeq * kMicroBatch, kMicroBatch};
  const auto bytes = static_cast<size_t>(micro_batch_bytes(capacity));
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
  const MicroBatchStorage storage(memory, capacity);
  BatchSheet sheet;
  int64_t seen = 0, tokens = 0;
  for (auto _ : state) {
    const BatchExtent extent{seen, kMicroBatch, kMicroBatch, 1};
    fill_batch_sheet(dataset, order, {&extent, 1}, {&storage, 1}, sheet);
    seen += kMicroBatch;
    tokens += sheet.num_tokens;
  }
  // Seconds per 2048 tokens; printed with a unit prefix (u: microseconds).
  state.counters["per_2048_tokens"] =
      benchmark::Counter(static_cast<double>(tokens) / 2048, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  std::free(memory);
}

BENCHMARK_CAPTURE(fill, window_u16, 50257, Sampling::kWindow);
BENCHMARK_CAPTURE(fill, window_i32, 128256, Sampling::kWindow);
BENCHMARK_CAPTURE(fill, document_u16, 50257, Sampling::kDocument);

}  // namespace
}  // namespace strata

BENCHMARK_MAIN();

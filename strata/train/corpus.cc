// SPDX-License-Identifier: Apache-2.0
#include "strata/train/corpus.h"

#include <cstdio>
#include <filesystem>

#include "strata/base/error.h"
#include "strata/base/log.h"
#include "strata/base/progress.h"
#include "strata/base/units.h"
#include "strata/data/ingest.h"

namespace strata {
namespace {

IngestResult ingest_with_progress(const std::vector<std::string>& patterns, const Tokenizer& tokenizer,
                                  IngestOptions options) {
  std::optional<Progress> progress;
  int64_t last = 0;
  options.progress = [&](int64_t done, int64_t total) {
    if (!progress) progress.emplace(stderr, "tokenise " + options.option, "bytes", total);
    progress->update(last = done);
  };
  IngestResult result = ingest(patterns, tokenizer, options);
  if (progress) progress->finish(last);
  const IngestReport& report = result.report;
  log_info("{}: {} files, {} documents ({} empty left out), {} tokens{}", options.option, report.files,
           report.documents, report.empty_documents, report.tokens, report.reused ? ", token file reused" : "");
  return result;
}

void log_samples(const std::string& name, const Dataset& dataset) {
  const DatasetReport& report = dataset.report();
  if (report.cut > 0 || report.dropped > 0)
    log_info("{}: {} documents whole, {} cut into pieces of at most {} tokens, {} dropped (one token)", name,
             report.whole, report.cut, dataset.seq() + 1, report.dropped);
}

}  // namespace

Corpus open_corpus(const TrainConfig& config, const ModelSpec& model, const std::string& run_folder) {
  Corpus corpus;
  corpus.tokenizer = make_tokenizer(config.data.tokenizer);
  const std::filesystem::path cache = config.data.cache.empty() ? std::filesystem::path(run_folder) / "tokens"
                                                                : std::filesystem::path(config.data.cache);
  const int64_t seq = config.data.seq == 0 ? model.max_positions : config.data.seq;
  IngestResult train =
      ingest_with_progress(config.data.train, *corpus.tokenizer, {"data.train", cache, "train", model.vocab});
  if (!config.data.validation.empty()) {
    IngestResult validation = ingest_with_progress(config.data.validation, *corpus.tokenizer,
                                                   {"data.validation", cache, "validation", model.vocab});
    corpus.train.emplace(std::move(train.tokens), config.data.sampling, seq);
    corpus.validation.emplace(std::move(validation.tokens), config.data.sampling, seq);
  } else if (config.data.validation_fraction > 0) {
    SplitTokens split = split_validation(train.tokens, config.data.validation_fraction);
    corpus.train.emplace(std::move(split.train), config.data.sampling, seq);
    corpus.validation.emplace(std::move(split.validation), config.data.sampling, seq);
  } else {
    corpus.train.emplace(std::move(train.tokens), config.data.sampling, seq);
  }
  for (const std::filesystem::path& path : expand_patterns(config.data.train, "data.train"))
    if (path.extension() == ".bin") corpus.tokenizer.reset();
  if (!corpus.tokenizer)
    log_info("data.train holds token ids of an unknown tokenizer: the model folder gets no tokenizer");
  log_samples("train", *corpus.train);
  if (corpus.validation) log_samples("validation", *corpus.validation);
  return corpus;
}

}  // namespace strata

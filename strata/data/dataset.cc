// SPDX-License-Identifier: Apache-2.0
#include "strata/data/dataset.h"

#include <algorithm>
#include <array>
#include <utility>

#include "strata/base/error.h"

namespace strata {
namespace {

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

Dataset::Dataset(TokenSet tokens, Sampling sampling, int64_t seq)
    : tokens_(std::move(tokens)), sampling_(sampling), seq_(seq) {
  STRATA_CHECK(seq > 0, "seq {}", seq);
  report_.documents = tokens_.num_documents();
  if (sampling_ == Sampling::kDocument) {
    index_documents();
  } else {
    report_.targets = std::max<int64_t>(0, tokens_.num_tokens() - 1);
    report_.samples = divide_up(report_.targets, seq_);
  }
  if (report_.samples == 0)
    throw_bad_input("{} tokens in {} documents hold nothing to predict: a sample needs 2 tokens{}",
                    tokens_.num_tokens(), report_.documents,
                    sampling_ == Sampling::kDocument ? " of one document" : "");
}

void Dataset::index_documents() {
  first_sample_.reserve(static_cast<size_t>(report_.documents) + 1);
  for (int64_t i = 0; i < report_.documents; ++i) {
    first_sample_.push_back(report_.samples);
    const int64_t targets = std::max<int64_t>(0, tokens_.document(i).num_tokens - 1);
    const int64_t pieces = divide_up(targets, seq_);
    report_.dropped += pieces == 0;
    report_.whole += pieces == 1;
    report_.cut += pieces > 1;
    report_.samples += pieces;
    report_.targets += targets;
  }
  first_sample_.push_back(report_.samples);
}

DocumentRange Dataset::locate(int64_t sample) const {
  STRATA_CHECK(sample >= 0 && sample < num_samples(), "sample {} of {}", sample, num_samples());
  DocumentRange whole = {0, tokens_.num_tokens()};
  int64_t piece = sample;
  if (sampling_ == Sampling::kDocument) {
    const int64_t document =
        std::upper_bound(first_sample_.begin(), first_sample_.end(), sample) - first_sample_.begin() - 1;
    whole = tokens_.document(document);
    piece = sample - first_sample_[static_cast<size_t>(document)];
  }
  return {whole.begin + piece * seq_, std::min(seq_, whole.num_tokens - 1 - piece * seq_)};
}

void Dataset::read_sample(int64_t sample, std::span<int32_t> ids, std::span<int32_t> targets) const {
  const int64_t count = sample_tokens(sample);
  STRATA_CHECK(static_cast<int64_t>(ids.size()) == count && static_cast<int64_t>(targets.size()) == count,
               "sample {} has {} tokens, not {} and {}", sample, count, ids.size(), targets.size());
  read_piece(sample, 0, ids, targets);
}

void Dataset::read_piece(int64_t sample, int64_t position, std::span<int32_t> ids, std::span<int32_t> targets) const {
  const auto [begin, count] = locate(sample);
  const auto piece = static_cast<int64_t>(ids.size());
  STRATA_CHECK(piece > 0 && ids.size() == targets.size() && position >= 0 && position + piece <= count,
               "{} ids and {} targets from {} on of sample {}, which has {}", ids.size(), targets.size(), position,
               sample, count);
  tokens_.read(begin + position, ids);
  std::copy(ids.begin() + 1, ids.end(), targets.begin());
  tokens_.read(begin + position + piece, targets.last(1));
}

uint64_t Dataset::fingerprint() const {
  const std::array<uint64_t, 3> parts = {tokens_.fingerprint(), static_cast<uint64_t>(sampling_),
                                         static_cast<uint64_t>(seq_)};
  return checksum_of(std::as_bytes(std::span(parts)));
}

}  // namespace strata

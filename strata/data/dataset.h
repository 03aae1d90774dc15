// SPDX-License-Identifier: Apache-2.0
// A token set cut into samples of at most `seq` inputs, each with its next-token target.
// Windows: sample i is tokens [i * seq, i * seq + seq + 1) of the stream, so every token but the first is a target
// exactly once; the last sample may be shorter. Documents: one document per sample, a long one cut into pieces that
// overlap by one token, so every token of a document but its first is a target exactly once. Immutable; any thread may
// read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strata/data/token_set.h"
#include "strata/spec/train_config.h"

namespace strata {

struct DatasetReport {
  int64_t documents = 0;  // in the token set
  int64_t whole = 0;      // documents that are one sample (document sampling)
  int64_t cut = 0;        // documents cut into several
  int64_t dropped = 0;    // documents of one token: nothing to predict
  int64_t samples = 0;
  int64_t targets = 0;  // counted tokens of one pass
};

class Dataset {
 public:
  // Throws Error when there is nothing to predict.
  Dataset(TokenSet tokens, Sampling sampling, int64_t seq);

  int64_t num_samples() const { return report_.samples; }
  int64_t seq() const { return seq_; }
  // Inputs of a sample, 1 to seq; as many targets.
  int64_t sample_tokens(int64_t sample) const { return locate(sample).num_tokens; }
  // Both spans have sample_tokens(sample) entries.
  void read_sample(int64_t sample, std::span<int32_t> ids, std::span<int32_t> targets) const;
  // As many of them, at least one, from `position` on.
  void read_piece(int64_t sample, int64_t position, std::span<int32_t> ids, std::span<int32_t> targets) const;

  const DatasetReport& report() const { return report_; }
  // Of the tokens, their choice, the way of sampling and seq: equal means the same samples in the same order.
  uint64_t fingerprint() const;

 private:
  DocumentRange locate(int64_t sample) const;  // its inputs
  void index_documents();

  TokenSet tokens_;
  Sampling sampling_;
  int64_t seq_;
  std::vector<int64_t> first_sample_;  // of each document, then the number of samples; document sampling only
  DatasetReport report_;
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// Parts of token files read as one stream of tokens with documents: what training or validation sees. A cheap value;
// files are shared and read-only, so any thread may read. Places in a set run from 0 whatever the parts are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "strata/data/token_file.h"

namespace strata {

struct DocumentRange {
  int64_t begin = 0;  // place in the set
  int64_t num_tokens = 0;
};

class TokenSet {
 public:
  // All of every file, in this order.
  explicit TokenSet(std::vector<TokenFile> files);

  int64_t num_tokens() const { return parts_.empty() ? 0 : parts_.back().begin + parts_.back().num_tokens(); }
  // A document that a slice cuts counts in both slices.
  int64_t num_documents() const {
    return parts_.empty() ? 0 : parts_.back().begin_document + parts_.back().num_documents();
  }
  DocumentRange document(int64_t index) const;

  // Tokens [begin, begin + out.size()). Throws Error for an id outside the vocabulary.
  void read(int64_t begin, std::span<int32_t> out) const;

  TokenSet slice_tokens(int64_t begin, int64_t end) const;
  TokenSet slice_documents(int64_t begin, int64_t end) const;
  void append(const TokenSet& other);  // of the same files

  // Changes with any token and with the choice of parts. Reads llm.c files once.
  uint64_t fingerprint() const;

 private:
  struct Part {
    int64_t file = 0;
    int64_t first_token = 0, end_token = 0;        // in the file
    int64_t first_document = 0, end_document = 0;  // those with tokens here
    int64_t begin = 0, begin_document = 0;         // places in the set
    int64_t num_tokens() const { return end_token - first_token; }
    int64_t num_documents() const { return end_document - first_document; }
  };
  TokenSet() = default;
  void add(Part part);
  const Part& part_of_token(int64_t place) const;
  const Part& part_of_document(int64_t index) const;

  std::shared_ptr<const std::vector<TokenFile>> files_;
  std::vector<Part> parts_;
};

struct SplitTokens {
  TokenSet train;
  TokenSet validation;
};

// Holds out round(fraction * documents) whole documents, evenly spaced; where that is none (one document, or few), the
// last round(fraction * tokens) tokens. Depends on nothing but the data and the fraction. Throws Error when either side
// would have less than 2 tokens.
SplitTokens split_validation(const TokenSet& all, double fraction);

}  // namespace strata

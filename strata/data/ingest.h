// SPDX-License-Identifier: Apache-2.0
// From what data.train or data.validation names to tokens. Text becomes one token file in the cache, made again only
// when paths, sizes, times or the tokenizer changed; token files are used where they are. Streams: no file is held in
// memory. A whole .txt file is one document, a .jsonl file one document per line (member "text"); each ends with
// end-of-text. .bin (llm.c) and .tokens are token files. Call from one thread; one process at a time should fill a
// cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "strata/data/token_set.h"
#include "strata/data/tokenizer.h"

namespace strata {

struct IngestOptions {
  std::string option;           // what names the data in messages: "data.train"
  std::filesystem::path cache;  // folder of the token file; made when missing
  std::string name;             // the token file is <cache>/<name>.tokens
  int64_t vocab = 0;            // of the model
  std::function<void(int64_t bytes_done, int64_t bytes_total)> progress = {};  // may be empty
};

struct IngestReport {
  int64_t files = 0;
  int64_t bytes = 0;  // of these files
  int64_t documents = 0;
  int64_t empty_documents = 0;  // left out
  int64_t tokens = 0;           // with the end-of-text of each document
  bool reused = false;          // text whose token file was still valid
};

struct IngestResult {
  TokenSet tokens;
  IngestReport report;
};

// Throws Error for a pattern without match, an unknown kind of file, text mixed with token files, anything wrong inside
// a file.
IngestResult ingest(const std::vector<std::string>& patterns, const Tokenizer& tokenizer, const IngestOptions& options);

// The files that paths and globs (* ? [...]) name, in the order given, the matches of one glob sorted by name. Throws
// Error for a pattern without match and for a file named twice.
std::vector<std::filesystem::path> expand_patterns(const std::vector<std::string>& patterns, const std::string& option);

}  // namespace strata

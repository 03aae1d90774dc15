// SPDX-License-Identifier: Apache-2.0
// Token ids on disk, with the borders of documents (docs/formats/token-file.md). The writer streams: it holds 1 MiB of
// tokens and 8 bytes per document, and the file appears whole or not at all. The reader maps the file, and also reads
// llm.c's .bin files (uint16) as one document. Reading is const and safe from any thread. All places are 64-bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "strata/base/atomic_file.h"
#include "strata/base/checksum.h"
#include "strata/base/file.h"
#include "strata/tensor/tensor.h"

namespace strata {

// What a token file was made from, kept with it.
struct TokenFileSource {
  uint64_t fingerprint = 0;     // of paths, sizes, times and tokenizer; 0: not known
  int64_t num_bytes = 0;        // of text read
  int64_t empty_documents = 0;  // left out
};

class TokenFileWriter {
 public:
  // The ids are stored as u16 where the vocabulary allows it (up to 65536), else as i32.
  TokenFileWriter(const std::filesystem::path& path, int64_t vocab, uint64_t source_fingerprint);

  // Throws Error for an id outside [0, vocab). A document is everything since the last end_document().
  void append(std::span<const int32_t> ids);
  void end_document();
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return static_cast<int64_t>(offsets_.size()) - 1; }

  // Writes index and header and makes the file appear. Every document is ended. Call once.
  void commit(int64_t source_bytes, int64_t empty_documents);

 private:
  void flush();

  AtomicFile file_;
  int64_t vocab_;
  uint64_t source_fingerprint_;
  DType dtype_;
  std::vector<std::byte> buffer_;
  std::vector<int64_t> offsets_ = {0};
  int64_t num_tokens_ = 0;
  Checksum fingerprint_;
};

class TokenFile {
 public:
  // A Strata token file or an llm.c .bin, told apart by its first bytes. `vocab` is the model's: a file made for a
  // larger vocabulary is refused here, an id outside it when it is read. Throws Error for a wrong or damaged file.
  TokenFile(const std::filesystem::path& path, int64_t vocab);

  const std::filesystem::path& path() const { return file_.path(); }
  DType dtype() const { return dtype_; }
  int64_t vocab() const { return vocab_; }  // every id is below it
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return static_cast<int64_t>(offsets().size()) - 1; }
  // First token of each document, then the number of tokens.
  std::span<const int64_t> offsets() const { return indexed_ ? index_ : std::span<const int64_t>(whole_); }
  const TokenFileSource& source() const { return source_; }

  // xxh3 of the stored tokens. Recorded in a Strata file; reads all of a .bin.
  uint64_t fingerprint() const;

  // Tokens [begin, begin + out.size()). Throws Error for an id outside the vocabulary.
  void read(int64_t begin, std::span<int32_t> out) const;

 private:
  void open_indexed(int64_t model_vocab);
  void open_llmc();
  [[noreturn]] void refuse_ids(int64_t begin, std::span<const int32_t> ids) const;

  MappedFile file_;
  int64_t vocab_ = 0;
  DType dtype_ = DType::kU16;
  int64_t num_tokens_ = 0;
  const std::byte* tokens_ = nullptr;
  bool indexed_ = false;
  std::span<const int64_t> index_;  // in the file
  std::vector<int64_t> whole_;      // a .bin: {0, num_tokens}
  TokenFileSource source_;
  uint64_t recorded_fingerprint_ = 0;
};

}  // namespace strata

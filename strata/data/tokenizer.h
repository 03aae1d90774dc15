// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back. A tokenizer is immutable and may be used from any thread. Special tokens never come out
// of encode(): the characters "<|endoftext|>" inside a text stay text, so a document cannot end another one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // `text` is valid UTF-8: a document, or a piece of one cut after a line break (between characters in lines above 1
  // MiB). empty.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Throws Error for an id outside the vocabulary. The bytes of an incomplete character come out as they are.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  virtual int64_t vocab_size() const = 0;
  virtual int32_t end_of_text() const = 0;    // ends every document
  virtual std::string_view name() const = 0;  // as in data.tokenizer; part of what identifies a token file
};

inline constexpr std::string_view kEndOfTextToken = "<|endoftext|>";

// One id per byte (id = byte value) and 256 = "<|endoftext|>": vocabulary 257. encode() may be given any split of a
// text.
class BytesTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const override { return 257; }
  int32_t end_of_text() const override { return 256; }
  std::string_view name() const override { return "bytes"; }
};

// The tokenizer that data.tokenizer names; throws Error for a name that is not known.
std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/data/tokenizer.h"

#include "strata/base/error.h"

namespace strata {

std::vector<int32_t> BytesTokenizer::encode(std::string_view text) const {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  return {bytes, bytes + text.size()};
}

std::string BytesTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id > end_of_text())
      throw_bad_input("token id {} is outside the vocabulary of {} of the tokenizer 'bytes'", id, vocab_size());
    if (id == end_of_text())
      text += kEndOfTextToken;
    else
      text += static_cast<char>(id);
  }
  return text;
}

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name) {
  if (name == "bytes") return std::make_unique<BytesTokenizer>();
  throw_bad_input("data.tokenizer = '{}' is not known: use 'bytes', or give data.train as token files (.bin, .tokens)",
                  name);
}

}  // namespace strata

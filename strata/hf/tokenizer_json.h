// SPDX-License-Identifier: Apache-2.0
// The tokenizer files of a Hugging Face folder. The bytes tokenizer is written as a byte-level BPE without merges,
// whose ids are the byte values, with "<|endoftext|>" = 256 as its one special token; `tokenizers` and transformers
// load it and give the same ids and text. They read the characters "<|endoftext|>" in a text as the special token
// unless told not to (encode_special_tokens, split_special_tokens); Strata's data never does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace strata {

nlohmann::json bytes_tokenizer_json();
nlohmann::json bytes_tokenizer_config_json(int64_t max_positions);

// tokenizer.json and tokenizer_config.json in an existing folder.
void write_bytes_tokenizer(const std::filesystem::path& folder, int64_t max_positions);

// Checks that the folder's tokenizer.json is the bytes tokenizer, also as transformers writes it again. Throws Error
// naming what it found for any other.
void require_bytes_tokenizer(const std::filesystem::path& folder);

}  // namespace strata

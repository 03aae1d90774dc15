// SPDX-License-Identifier: Apache-2.0
#include "strata/hf/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "strata/base/atomic_file.h"
#include "strata/base/error.h"

namespace strata {
namespace {

using Json = nlohmann::json;

constexpr int kEndOfText = 256;
constexpr const char* kEndOfTextToken = "<|endoftext|>";

// How byte-level tokenizers write a byte in their vocabulary: printable Latin-1 bytes stand for themselves, the others,
// in order, for the characters from U+0100 on. All are below U+0800: at most two bytes of UTF-8.
std::vector<std::string> byte_alphabet() {
  std::vector<std::string> alphabet;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const int character = printable ? byte : next++;
    std::string& symbol = alphabet.emplace_back();
    if (character < 0x80) {
      symbol += static_cast<char>(character);
    } else {
      symbol += static_cast<char>(0xc0 | (character >> 6));
      symbol += static_cast<char>(0x80 | (character & 0x3f));
    }
  }
  return alphabet;
}

Json byte_vocabulary() {
  Json vocabulary = Json::object();
  const std::vector<std::string> alphabet = byte_alphabet();
  for (size_t byte = 0; byte < alphabet.size(); ++byte) vocabulary[alphabet[byte]] = byte;
  return vocabulary;
}

// What is at a path of keys, or null.
Json find_or_null(const Json& json, std::initializer_list<const char*> keys) {
  const Json* here = &json;
  for (const char* key : keys) {
    if (!here->is_object() || !here->contains(key)) return nullptr;
    here = &(*here)[key];
  }
  return *here;
}

bool has_bytes_vocabulary(const Json& model) {
  Json vocabulary = find_or_null(model, {"vocab"});
  if (!vocabulary.is_object()) return false;
  if (find_or_null(vocabulary, {kEndOfTextToken}) == kEndOfText) vocabulary.erase(kEndOfTextToken);
  return vocabulary == byte_vocabulary();
}

bool has_only_end_of_text(const Json& added) {
  return added.is_array() && added.size() == 1 && find_or_null(added[0], {"id"}) == kEndOfText &&
         find_or_null(added[0], {"content"}) == kEndOfTextToken && find_or_null(added[0], {"special"}) == true;
}

bool is_byte_level(const Json& step) {
  return find_or_null(step, {"type"}) == "ByteLevel" && find_or_null(step, {"add_prefix_space"}) != true;
}

// Whether what comes after the model leaves its ids alone: nothing, byte offsets, or a template without special tokens.
bool adds_nothing(const Json& step) {
  if (step.is_null() || is_byte_level(step)) return true;
  const Json special = find_or_null(step, {"special_tokens"});
  return find_or_null(step, {"type"}) == "TemplateProcessing" && special.is_object() && special.empty();
}

bool is_bytes_tokenizer(const Json& json) {
  const Json merges = find_or_null(json, {"model", "merges"});
  return find_or_null(json, {"model", "type"}) == "BPE" && merges.is_array() && merges.empty() &&
         has_bytes_vocabulary(find_or_null(json, {"model"})) &&
         has_only_end_of_text(find_or_null(json, {"added_tokens"})) &&
         is_byte_level(find_or_null(json, {"pre_tokenizer"})) &&
         find_or_null(json, {"decoder", "type"}) == "ByteLevel" && find_or_null(json, {"normalizer"}).is_null() &&
         adds_nothing(find_or_null(json, {"post_processor"})) && find_or_null(json, {"truncation"}).is_null() &&
         find_or_null(json, {"padding"}).is_null();
}

// "BPE, 50257 tokens, 50000 merges, pre-tokenizer ByteLevel, normalizer none, 1 added tokens"
std::string describe(const Json& json) {
  const auto name_of = [&](const char* key) {
    const Json type = find_or_null(json, {key, "type"});
    return type.is_string() ? type.get<std::string>() : std::string("none");
  };
  return fmt::format("model {}, {} tokens, {} merges, pre-tokenizer {}, normalizer {}, {} added tokens",
                     name_of("model"), find_or_null(json, {"model", "vocab"}).size(),
                     find_or_null(json, {"model", "merges"}).size(), name_of("pre_tokenizer"), name_of("normalizer"),
                     find_or_null(json, {"added_tokens"}).size());
}

}  // namespace

Json bytes_tokenizer_json() {
  const auto byte_level = [](bool trim_offsets) {
    return Json{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", trim_offsets}, {"use_regex", false}};
  };
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {{{"id", kEndOfText},
             {"content", kEndOfTextToken},
             {"single_word", false},
             {"lstrip", false},
             {"rstrip", false},
             {"normalized", false},
             {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level(false)},
          {"post_processor", nullptr},
          {"decoder", byte_level(false)},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", byte_vocabulary()},
            {"merges", Json::array()}}}};
}

Json bytes_tokenizer_config_json(int64_t max_positions) {
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},
          {"bos_token", nullptr},
          {"eos_token", kEndOfTextToken},
          {"pad_token", nullptr},
          {"unk_token", nullptr},
          {"add_prefix_space", false},
          {"clean_up_tokenization_spaces", false},
          {"model_max_length", max_positions}};
}

void write_bytes_tokenizer(const std::filesystem::path& folder, int64_t max_positions) {
  write_file_atomically(folder / "tokenizer.json", bytes_tokenizer_json().dump(2) + "\n");
  write_file_atomically(folder / "tokenizer_config.json", bytes_tokenizer_config_json(max_positions).dump(2) + "\n");
}

void require_bytes_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json";
  const std::string text = read_text_file(path);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) throw_bad_input("{} is not a JSON object", path.string());
  if (!is_bytes_tokenizer(json))
    throw_bad_input(
        "{} is not the bytes tokenizer but {}: tokenise with its own tools and give data.train as .bin or .tokens "
        "files",
        path.string(), describe(json));
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/hf/tokenizer_json.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "strata/base/testing.h"

namespace strata {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TokenizerJsonTest : public ::testing::Test {
 protected:
  std::string error_of(const std::string& contents) {
    write_test_file(folder_ / "tokenizer.json", contents);
    return error_message(ErrorKind::kBadInput, [&] { require_bytes_tokenizer(folder_.path()); });
  }
  TemporaryFolder folder_;
};

TEST_F(TokenizerJsonTest, AlphabetIsThatOfByteLevelTokenizers) {
  const Json vocabulary = bytes_tokenizer_json()["model"]["vocab"];
  EXPECT_EQ(vocabulary.size(), 256u);
  EXPECT_EQ(vocabulary["A"], 0x41);
  EXPECT_EQ(vocabulary["\u00e9"], 0xe9);
  EXPECT_EQ(vocabulary["\u0120"], 0x20);  // the well-known sign of a space
  EXPECT_EQ(vocabulary["\u010a"], 0x0a);  // and of a line end
  EXPECT_EQ(vocabulary["\u0143"], 0xad);  // the last of those that are not printable
}

TEST_F(TokenizerJsonTest, RecognisesItsOwn) {
  write_bytes_tokenizer(folder_.path(), 128);
  EXPECT_NO_THROW(require_bytes_tokenizer(folder_.path()));
}

TEST_F(TokenizerJsonTest, RefusesEveryDifferenceThatChangesIds) {
  const std::pair<const char*, Json> changes[] = {
      {"/model/type", "WordPiece"},
      {"/model/merges", Json::array({Json::array({"a", "b"})})},
      {"/model/vocab/A", 300},
      {"/model/vocab/AB", 300},
      {"/normalizer", {{"type", "NFC"}}},
      {"/pre_tokenizer/type", "Whitespace"},
      {"/pre_tokenizer/add_prefix_space", true},
      {"/post_processor", {{"type", "TemplateProcessing"}, {"special_tokens", {{"<|endoftext|>", {{"ids", {256}}}}}}}},
      {"/post_processor", {{"type", "BertProcessing"}}},
      {"/decoder", nullptr},
      {"/added_tokens/0/id", 257},
      {"/added_tokens/0/content", "</s>"},
      {"/added_tokens", Json::array()},
      {"/truncation", {{"max_length", 8}}},
  };
  for (const auto& [place, value] : changes) {
    Json json = bytes_tokenizer_json();
    json[Json::json_pointer(place)] = value;
    EXPECT_THAT(error_of(json.dump()), HasSubstr("is not the bytes tokenizer")) << place;
  }
}

TEST_F(TokenizerJsonTest, AllowsWhatDoesNotChangeIds) {
  Json json = bytes_tokenizer_json();
  json["model"]["vocab"]["<|endoftext|>"] = 256;
  json["pre_tokenizer"]["use_regex"] = true;
  json["post_processor"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_EQ(error_of(json.dump()), "no error");
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"special_tokens", Json::object()}};  // as transformers 5 does
  EXPECT_EQ(error_of(json.dump()), "no error");
}

TEST_F(TokenizerJsonTest, SaysWhatItFound) {
  EXPECT_THAT(
      error_of(R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},
                           "normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"ByteLevel"}})"),
      AllOf(HasSubstr("model BPE, 3 tokens, 1 merges, pre-tokenizer ByteLevel, normalizer NFC, 0 added tokens")));
  EXPECT_THAT(error_of("{"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("[]"), HasSubstr("not a JSON object"));
  std::filesystem::remove(folder_ / "tokenizer.json");
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { require_bytes_tokenizer(folder_.path()); }),
              HasSubstr("cannot open"));
}

}  // namespace
}  // namespace strata

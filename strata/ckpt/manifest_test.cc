// SPDX-License-Identifier: Apache-2.0
#include "strata/ckpt/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/base/checksum.h"
#include "strata/base/testing.h"
#include "strata/ckpt/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The middle third of the left half.
SavedPart example_part() {
  return {"embedding.token.weight",   "exp_avg",        96,  32,
          {{0, 96, 0, 16}, 512, 512}, "rank-00000.bin", 128, "00000000deadbeef"};
}

Manifest example() {
  Manifest manifest;
  manifest.trainer = {100, 98, 2, 3200, 51200, 3e-4, "bytes", "0123456789abcdef", "[run]\nseed = 1\n"};
  manifest.model = tiny_gpt2();
  manifest.saved.files = {{"rank-00000.bin", 4096}};
  manifest.saved.parts = {example_part()};
  return manifest;
}

// The text with its checksum made right again.
std::string sealed(std::string text) {
  const size_t end = text.rfind(",\n \"checksum\"");
  const std::string body = text.substr(0, end);
  return body + ",\n \"checksum\": \"" + checksum_hex(checksum_of(std::as_bytes(std::span(body.data(), body.size())))) +
         "\"\n}\n";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return sealed(text.replace(at, from.size(), to));
}

std::string refusal(const std::string& text) {
  return error_message(ErrorKind::kBadInput, [&] { parse_manifest(text, "m.json"); });
}

TEST(Manifest, RoundTrip) {
  const Manifest read = parse_manifest(manifest_text(example()), "m.json");
  EXPECT_EQ(read.trainer, example().trainer);
  EXPECT_EQ(read.model, example().model);
  EXPECT_EQ(manifest_text(read), manifest_text(example()));
  EXPECT_EQ(read.saved.parts.at(0).bytes(), 4 * 512);
  EXPECT_EQ(read.saved.parts.at(0).part, example_part().part);
}

TEST(Manifest, EveryCutIsNoticed) {
  const std::string text = manifest_text(example());
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_THAT(refusal(text.substr(0, size)), HasSubstr("m.json")) << size;
}

TEST(Manifest, EveryChangedByteIsNoticed) {
  std::string text = manifest_text(example());
  for (char& byte : text) {
    byte ^= 1;
    EXPECT_THAT(refusal(text), HasSubstr("m.json"));
    byte ^= 1;
  }
}

TEST(Manifest, RefusesWhatItDoesNotUnderstand) {
  const std::string text = manifest_text(example());
  EXPECT_THAT(refusal(replaced(text, "\"version\": 2", "\"version\": 3")),
              HasSubstr("version 3; this program reads versions up to 2"));
  EXPECT_THAT(refusal(replaced(text, "strata checkpoint", "something")), HasSubstr("something"));
  EXPECT_THAT(refusal(replaced(text, "\"update_step\": 98", "\"update_steps\": 98")), HasSubstr("update_step"));
  EXPECT_THAT(refusal(replaced(text, "\"dtype\": \"f32\"", "\"dtype\": \"bf16\"")), HasSubstr("bf16"));
  EXPECT_THAT(refusal(replaced(text, "\"files\"", "\"file\"")), HasSubstr("files"));
  EXPECT_THAT(refusal(sealed("{\n \"format\": ,\n \"checksum\": \"\"")), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(sealed(replaced(text, "   96,\n    32\n", "   -96,\n    32\n"))),
              AllOf(HasSubstr("exp_avg of embedding.token.weight: the shape is"), HasSubstr("not [rows, cols]")));
  EXPECT_THAT(refusal(replaced(text, "\"rectangle\": [", "\"rectangle\": [1,")),
              HasSubstr("not [row, rows, col, cols]"));
}

TEST(Manifest, RefusesPartsOutsideTheirTensor) {
  const auto refused = [](const Rectangle& rectangle, int64_t begin, int64_t count) {
    Manifest manifest = example();
    manifest.saved.parts[0].part = {rectangle, begin, count};
    return refusal(manifest_text(manifest));
  };
  EXPECT_THAT(refused({1, 96, 0, 16}, 0, 1), HasSubstr("1 elements from 0 of rectangle [1, 96, 0, 16] are not inside"));
  EXPECT_THAT(refused({0, 96, 17, 16}, 0, 1), HasSubstr("are not inside 96 x 32"));
  EXPECT_THAT(refused({0, 2, 0, 2}, 1, 4), HasSubstr("4 elements from 1"));
  EXPECT_THAT(refused({0, int64_t{1} << 31, 0, 2}, 1, 4), HasSubstr("up to 1073741824"));
}

// Written by one rank before tensors came in rectangles.
TEST(Manifest, ReadsVersionOne) {
  std::string text = manifest_text(example());
  const size_t begin = text.find("   \"rectangle\""), end = text.find("   \"begin\"");
  text.erase(begin, end - begin);
  const Manifest read = parse_manifest(replaced(text, "\"version\": 2", "\"version\": 1"), "m.json");
  EXPECT_EQ(read.saved.parts.at(0).part, (TensorPart{{0, 96, 0, 32}, 512, 512}));
}

TEST(PartList, RoundTrip) {
  const PartList list = example().saved;
  const PartList read = parse_part_list(part_list_text(list), "list.json");
  EXPECT_EQ(part_list_text(read), part_list_text(list));
  EXPECT_EQ(read.parts.size(), 1u);
  EXPECT_TRUE(parse_part_list(part_list_text({}), "list.json").parts.empty());
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { parse_part_list("{}", "list.json"); }), HasSubstr("list.json"));
}

std::string fault_of(const std::vector<TensorPart>& parts) {
  std::vector<SavedPart> saved(parts.size());
  std::vector<const SavedPart*> pointers;
  for (size_t index = 0; index < parts.size(); ++index) {
    saved[index].rows = 4;
    saved[index].cols = 6;
    saved[index].part = parts[index];
    pointers.push_back(&saved[index]);
  }
  return coverage_fault(pointers);
}

TEST(Coverage, ExactlyOnce) {
  const Rectangle left{0, 4, 0, 2}, right{0, 4, 2, 4};
  EXPECT_EQ(fault_of({{{0, 4, 0, 6}, 0, 24}}), "");
  EXPECT_EQ(fault_of({{right, 7, 9}, {left, 0, 8}, {right, 0, 7}}), "");
  EXPECT_EQ(fault_of({{right, 7, 9}, {left, 0, 8}, {right, 0, 6}}), "1 of 24 elements");
  EXPECT_EQ(fault_of({{right, 0, 16}}), "8 of 24 elements");
  EXPECT_EQ(fault_of({{right, 7, 9}, {left, 0, 8}, {right, 0, 8}}), "elements that are there twice");
  EXPECT_EQ(fault_of({{left, 0, 8}, {{0, 4, 1, 4}, 0, 16}}), "elements that are there twice");
  EXPECT_EQ(fault_of({{left, 0, 8}, {left, 0, 8}, {right, 0, 16}}), "elements that are there twice");
}

}  // namespace
}  // namespace strata

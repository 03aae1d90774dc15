// SPDX-License-Identifier: Apache-2.0
#include "strata/ckpt/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/base/checksum.h"
#include "strata/base/testing.h"
#include "strata/ckpt/testing.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

Manifest example() {
  Manifest manifest;
  manifest.trainer = {100, 98, 2, 3200, 51200, 3e-4, "bytes", "0123456789abcdef", "[run]\nseed = 1\n"};
  manifest.model = tiny_gpt2();
  manifest.files = {{"rank-00000.bin", 4096}};
  manifest.parts = {{"embedding.token.weight", "exp_avg", 97, 32, 0, 3104, "rank-00000.bin", 128, "00000000deadbeef"}};
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
  EXPECT_EQ(read.parts.at(0).bytes(), 4 * 3104);
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
  EXPECT_THAT(refusal(replaced(text, "\"version\": 1", "\"version\": 2")),
              HasSubstr("version 2; this program reads version 1"));
  EXPECT_THAT(refusal(replaced(text, "strata checkpoint", "something")), HasSubstr("something"));
  EXPECT_THAT(refusal(replaced(text, "\"update_step\": 98", "\"update_steps\": 98")), HasSubstr("update_step"));
  EXPECT_THAT(refusal(replaced(text, "\"dtype\": \"f32\"", "\"dtype\": \"bf16\"")), HasSubstr("bf16"));
  EXPECT_THAT(refusal(replaced(text, "\"files\"", "\"file\"")), HasSubstr("files"));
  EXPECT_THAT(refusal(sealed("{\n \"format\": ,\n \"checksum\": \"\"")), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(sealed(replaced(text, "   97,\n", "   -97,\n"))),
              HasSubstr("the shape of embedding.token.weight"));
}

}  // namespace
}  // namespace strata

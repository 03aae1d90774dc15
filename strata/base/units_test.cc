// SPDX-License-Identifier: Apache-2.0
#include "strata/base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/base/error.h"

namespace strata {
namespace {

TEST(Units, FormatsBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.0 MiB");  // never "1024.0 KiB"
  EXPECT_EQ(format_bytes(int64_t{12} << 30), "12.0 GiB");
  EXPECT_EQ(format_bytes(-2048), "-2.0 KiB");
}

TEST(Units, FormatsCounts) {
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(999'990), "1.0M");
  EXPECT_EQ(format_count(124'439'808), "124.4M");
  EXPECT_EQ(format_count(1'100'000'000), "1.1B");
}

TEST(Units, FormatsSeconds) {
  EXPECT_EQ(format_seconds(0), "0 ns");
  EXPECT_EQ(format_seconds(850e-9), "850 ns");
  EXPECT_EQ(format_seconds(3.2e-6), "3.2 us");
  EXPECT_EQ(format_seconds(0.0471), "47.1 ms");
  EXPECT_EQ(format_seconds(0.99999), "1.0 s");
  EXPECT_EQ(format_seconds(12.34), "12.3 s");
  EXPECT_EQ(format_seconds(59.97), "1 min 00 s");
  EXPECT_EQ(format_seconds(245), "4 min 05 s");
  EXPECT_EQ(format_seconds(7629), "2 h 07 min");
  EXPECT_EQ(format_seconds(3 * 86400 + 4 * 3600), "3 d 04 h");
}

TEST(Units, ParsesBytes) {
  EXPECT_EQ(parse_bytes("8GiB"), int64_t{8} << 30);
  EXPECT_EQ(parse_bytes("512 MiB"), int64_t{512} << 20);
  EXPECT_EQ(parse_bytes("1.5kib"), 1536);
  EXPECT_EQ(parse_bytes("16GB"), 16'000'000'000);
  EXPECT_EQ(parse_bytes("1e9"), 1'000'000'000);
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("0"), 0);
}

TEST(Units, RefusesWhatIsNotASize) {
  for (const char* text : {"", "GiB", "8 gigs", "8GiB and more", "-1", "1e30", "nan", "inf"}) {
    EXPECT_THROW(parse_bytes(text), Error) << text;
  }
  try {
    parse_bytes("8gigs");
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("\"8gigs\""), testing::HasSubstr("\"gigs\""),
                                             testing::HasSubstr("8GiB")));
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
  }
}

TEST(Units, FindsTheClosestWord) {
  const std::vector<std::string> words = {"beta1", "beta2", "learning_rate", "seq"};
  EXPECT_EQ(closest_match("learning_rte", words), "learning_rate");
  EXPECT_EQ(closest_match("bata2", words), "beta2");
  EXPECT_EQ(closest_match("esq", words), "seq");  // a swap is one edit
  EXPECT_EQ(closest_match("momentum", words), "");
  EXPECT_EQ(did_you_mean("learning_rte", words), ": did you mean learning_rate?");
  EXPECT_EQ(did_you_mean("momentum", words), "");
}

TEST(Units, MatchesGlobs) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("model.*.weight", "model.layers.0.weight"));
  EXPECT_TRUE(glob_match("*norm*", "model.norm.weight"));
  EXPECT_TRUE(glob_match("h.?.ln", "h.3.ln"));
  EXPECT_TRUE(glob_match("a*b*c", "aXbXbXc"));
  EXPECT_FALSE(glob_match("h.?.ln", "h.13.ln"));
  EXPECT_FALSE(glob_match("*.bias", "h.0.bias.copy"));
  EXPECT_FALSE(glob_match("", "x"));
  EXPECT_FALSE(glob_match("a*b", "ac"));
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/data/tokenizer.h"

#include <gmock/gmock.h>

#include "strata/base/testing.h"
#include "strata/data/utf8.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BytesTokenizer, IdsAreBytes) {
  const BytesTokenizer tokenizer;
  EXPECT_THAT(tokenizer.encode("A\xc3\xa9\n"), ElementsAre(0x41, 0xc3, 0xa9, 0x0a));
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(all)), all);
}

TEST(BytesTokenizer, SpecialTokenIsWrittenOutButNeverRead) {
  const BytesTokenizer tokenizer;
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{'a', 256}), "a<|endoftext|>");
  EXPECT_EQ(tokenizer.encode(kEndOfTextToken).size(), kEndOfTextToken.size());
}

TEST(BytesTokenizer, RefusesIdsOutsideItsVocabulary) {
  const BytesTokenizer tokenizer;
  for (const int32_t id : {257, -1})
    EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { tokenizer.decode(std::vector<int32_t>{id}); }),
                HasSubstr("outside the vocabulary of 257"));
}

TEST(MakeTokenizer, RefusesUnknownNames) {
  EXPECT_EQ(make_tokenizer("bytes")->name(), "bytes");
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [] { make_tokenizer("gpt2"); }),
              HasSubstr("data.tokenizer = 'gpt2'"));
}

TEST(ScanUtf8, AgreesWithTheTableOfWellFormedSequences) {
  struct Case {
    std::string_view text;
    int64_t valid_bytes;
    Utf8End end;
  };
  // Borders of every row of the Unicode standard's table 3-7.
  const Case cases[] = {
      {"", 0, Utf8End::kComplete},
      {"plain ASCII, longer than a word", 31, Utf8End::kComplete},
      {"\xc2\x80\xdf\xbf", 4, Utf8End::kComplete},
      {"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf", 12, Utf8End::kComplete},
      {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 8, Utf8End::kComplete},
      {"ab\x80", 2, Utf8End::kInvalid},              // continuation without a start
      {"ab\xc1\xbf", 2, Utf8End::kInvalid},          // overlong, two bytes
      {"ab\xe0\x9f\xbf", 2, Utf8End::kInvalid},      // overlong, three
      {"ab\xf0\x8f\xbf\xbf", 2, Utf8End::kInvalid},  // overlong, four
      {"ab\xed\xa0\x80", 2, Utf8End::kInvalid},      // surrogate
      {"ab\xf4\x90\x80\x80", 2, Utf8End::kInvalid},  // above U+10FFFF
      {"ab\xff", 2, Utf8End::kInvalid},
      {"0123456789abcdef\xe2\x82z", 16, Utf8End::kInvalid},
      {"ab\xe2\x82", 2, Utf8End::kTruncated},
      {"ab\xf0", 2, Utf8End::kTruncated},
      {"ab\xf0\x90\x80", 2, Utf8End::kTruncated},
      {"ab\xe0\x9f", 2, Utf8End::kInvalid},  // no third byte could save it
  };
  for (const Case& one : cases) {
    const Utf8Scan scan = scan_utf8(one.text);
    EXPECT_EQ(scan.valid_bytes, one.valid_bytes) << ::testing::PrintToString(one.text);
    EXPECT_EQ(scan.end, one.end) << ::testing::PrintToString(one.text);
  }
}

}  // namespace
}  // namespace strata

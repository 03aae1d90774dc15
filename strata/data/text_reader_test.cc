// SPDX-License-Identifier: Apache-2.0
#include "strata/data/text_reader.h"

#include <gmock/gmock.h>

#include <vector>

#include "strata/base/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

class TextReaderTest : public ::testing::Test {
 protected:
  std::vector<std::string> pieces(const std::string& contents) {
    write_test_file(path_, contents);
    std::vector<std::string> found;
    read_text_pieces(
        path_, [&](std::string_view piece) { found.emplace_back(piece); }, [](int64_t) {});
    return found;
  }
  std::string text(const std::string& contents) {
    std::string joined;
    for (const std::string& piece : pieces(contents)) joined += piece;
    return joined;
  }
  std::vector<std::string> documents(const std::string& contents) {
    write_test_file(path_, contents);
    std::vector<std::string> found;
    read_jsonl_documents(
        path_, [&](std::string_view document) { found.emplace_back(document); }, [](int64_t) {});
    return found;
  }
  std::string text_error(const std::string& contents) {
    return error_message(ErrorKind::kBadInput, [&] { pieces(contents); });
  }
  std::string jsonl_error(const std::string& contents) {
    return error_message(ErrorKind::kBadInput, [&] { documents(contents); });
  }
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "input";
};

TEST_F(TextReaderTest, NormalisesMarkAndLineEnds) {
  EXPECT_EQ(text("a\nb\n"), "a\nb\n");
  EXPECT_EQ(text("\xef\xbb\xbf"
                 "a\r\nb\r\n"),
            "a\nb\n");
  EXPECT_EQ(text("a\rb\r\r\nc\r"), "a\rb\r\nc\r");    // a lone "\r" is no line end
  EXPECT_EQ(text("a\xef\xbb\xbf"), "a\xef\xbb\xbf");  // only at the start is it a mark
  EXPECT_EQ(with_unix_lines("\r\n\r\n"), "\n\n");
}

// Whatever lies on the border of a piece: a character, a line end, a line longer than a piece.
TEST_F(TextReaderTest, PiecesJoinToTheText) {
  for (const size_t before : {kMiB - 4, kMiB - 3, kMiB - 2, kMiB - 1, kMiB, kMiB + 1}) {
    const std::string start(before, 'x');
    EXPECT_EQ(text(start + "\r\nend"), start + "\nend");
    const std::string wide = start + "\xf0\x9f\x98\x80" + std::string(kMiB, 'y');
    EXPECT_EQ(text(wide), wide);
    const std::string lines = "one\n" + start + "\ntwo\r\xc3\xa9";
    EXPECT_EQ(text(lines), lines);
  }
}

TEST_F(TextReaderTest, PiecesEndAfterLineBreaks) {
  std::string lines;
  for (int i = 0; i < 300000; ++i) lines += fmt::format("line {}\n", i);
  const std::vector<std::string> found = pieces(lines);
  EXPECT_GT(found.size(), 2u);
  for (const std::string& piece : found) {
    EXPECT_EQ(piece.back(), '\n');
    EXPECT_LE(piece.size(), 2 * kMiB);
  }
}

TEST_F(TextReaderTest, InvalidUtf8NamesFileAndByte) {
  EXPECT_THAT(text_error("ab\xff"
                         "cd"),
              AllOf(HasSubstr(path_.string()), HasSubstr("at byte 2 (0xff)")));
  EXPECT_THAT(text_error("\xef\xbb\xbf\r\nab\xff"),
              HasSubstr("at byte 7 (0xff)"));                             // as the file has it, not as normalised
  EXPECT_THAT(text_error("abc\xe2\x82"), HasSubstr("at byte 3 (0xe2)"));  // cut off
  EXPECT_THAT(text_error(std::string(kMiB - 1, 'x') + "\xe2\x82z"), HasSubstr("at byte 1048575 (0xe2)"));
  EXPECT_THAT(text_error("some\n" + std::string(3 * kMiB, 'x') + "\xc0"), HasSubstr("at byte 3145733 (0xc0)"));
  EXPECT_THAT(jsonl_error("{\"text\":\"a\"}\n{\"text\":\"\xff\"}\n"), HasSubstr("invalid UTF-8 at byte 22"));
  EXPECT_THAT(text_error(std::string("\xff\xfe"
                                     "a\0",
                                     4)),
              HasSubstr("convert the file to UTF-8"));  // UTF-16
}

TEST_F(TextReaderTest, FilesWithoutContentAreRefused) {
  EXPECT_THAT(text_error(""), HasSubstr("is empty"));
  EXPECT_THAT(text_error("\xef\xbb\xbf"), HasSubstr("is empty"));
  EXPECT_THAT(jsonl_error(""), HasSubstr("holds no records"));
  EXPECT_THAT(jsonl_error("\n \r\n"), HasSubstr("holds no records"));
  std::filesystem::remove(path_);
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { PieceReader(path_, PieceBorder::kLine); }),
              HasSubstr("cannot open"));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { PieceReader(folder_.path(), PieceBorder::kLine); }),
              HasSubstr("not a regular file"));
}

// The same 5 records in every encoding of mark, line end and last line (B52).
TEST_F(TextReaderTest, JsonlDoesNotDependOnMarkAndLineEnd) {
  const std::vector<std::string> expected = {"one", "t\xc3\xbco", "th\r\nree", "", "\xf0\x9f\x98\x80"};
  const std::vector<std::string> lines = {R"({"text":"one"})", R"({"id":7,"text":"t\u00fco"})",
                                          R"({"text":"th\r\nree"})", R"({"text":""})", R"({"text":"\ud83d\ude00"})"};
  for (const std::string mark : {"", "\xef\xbb\xbf"})
    for (const std::string line_end : {"\n", "\r\n"})
      for (const std::string last : {"", "end", "end and blank", "blanks"}) {
        std::string contents = mark;
        for (size_t i = 0; i < lines.size(); ++i) contents += lines[i] + (i + 1 < lines.size() ? line_end : "");
        if (!last.empty()) contents += line_end;
        if (last == "end and blank") contents += line_end;
        if (last == "blanks") contents += "  \t" + line_end + "  ";
        EXPECT_EQ(documents(contents), expected) << ::testing::PrintToString(contents);
      }
}

TEST_F(TextReaderTest, ABadLineIsNamed) {
  const std::string good = "{\"text\":\"a\"}\n";
  EXPECT_THAT(jsonl_error(good + good + "{\"text\":\n" + good), AllOf(HasSubstr("input:3:"), HasSubstr("not JSON")));
  EXPECT_THAT(jsonl_error(good + "\n\n" + "[1]\n"),
              AllOf(HasSubstr("input:4:"), HasSubstr("JSON array, not an object")));
  EXPECT_THAT(jsonl_error(good + "{\"txt\":\"a\"}"), AllOf(HasSubstr("input:2:"), HasSubstr("no \"text\"")));
  EXPECT_THAT(jsonl_error("{\"text\":[\"a\"]}"), AllOf(HasSubstr("input:1:"), HasSubstr("\"text\" is a JSON array")));
  EXPECT_THAT(jsonl_error(R"({"text":"\ud83d"})"), HasSubstr("not JSON"));  // half a surrogate pair is no text
}

TEST_F(TextReaderTest, LinesAcrossPiecesStayWhole) {
  std::vector<std::string> expected;
  std::string contents;
  for (const size_t length : {size_t{10}, kMiB - 30, 3 * kMiB, size_t{5}}) {
    expected.push_back(std::string(length, 'z'));
    contents += "{\"text\":\"" + expected.back() + "\"}\r\n";
  }
  EXPECT_EQ(documents(contents), expected);
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/data/token_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "strata/base/testing.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kHeaderBytes = 80;  // docs/formats/token-file.md

class TokenFileTest : public ::testing::Test {
 protected:
  // Documents (1 2 3) and (4 5), with the given vocabulary.
  fs::path write_small(int64_t vocab) {
    TokenFileWriter writer(path_, vocab, 77);
    writer.append(std::vector<int32_t>{1, 2, 3});
    writer.end_document();
    writer.append(std::vector<int32_t>{4, 5});
    writer.end_document();
    writer.commit(1000, 2);
    return path_;
  }
  void overwrite(int64_t offset, const void* bytes, size_t size) {
    const int file = ::open(path_.c_str(), O_WRONLY);
    ASSERT_EQ(::pwrite(file, bytes, size, offset), static_cast<ssize_t>(size));
    ::close(file);
  }
  std::string open_error(int64_t vocab = 1000) {
    return error_message(ErrorKind::kBadInput, [&] { TokenFile file(path_, vocab); });
  }
  static std::vector<int32_t> read(const TokenFile& file, int64_t begin, size_t count) {
    std::vector<int32_t> out(count);
    file.read(begin, out);
    return out;
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_ / "a.tokens";
};

TEST_F(TokenFileTest, RoundTrips) {
  const TokenFile file(write_small(300), 1000);
  EXPECT_EQ(file.dtype(), DType::kU16);
  EXPECT_EQ(file.vocab(), 300);
  EXPECT_EQ(file.num_tokens(), 5);
  EXPECT_EQ(file.num_documents(), 2);
  EXPECT_THAT(file.offsets(), ElementsAre(0, 3, 5));
  EXPECT_THAT(read(file, 1, 4), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(file.source().fingerprint, 77u);
  EXPECT_EQ(file.source().num_bytes, 1000);
  EXPECT_EQ(file.source().empty_documents, 2);
  const uint16_t stored[] = {1, 2, 3, 4, 5};
  EXPECT_EQ(file.fingerprint(), checksum_of(std::as_bytes(std::span(stored))));
}

TEST_F(TokenFileTest, StreamsMoreThanItsBuffer) {
  std::vector<int32_t> ids(70000);
  std::iota(ids.begin(), ids.end(), 0);
  TokenFileWriter writer(path_, 100000, 0);
  for (int i = 0; i < 9; ++i) writer.append(ids);  // 2.4 MiB of i32
  writer.end_document();
  writer.commit(0, 0);
  const TokenFile file(path_, 100000);
  EXPECT_EQ(file.num_tokens(), 630000);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(read(file, i * 70000, 70000), ids);
}

// Ids above 16 bits survive, and the width follows the vocabulary (B54).
TEST_F(TokenFileTest, WidthFollowsTheVocabulary) {
  EXPECT_EQ(TokenFile(write_small(65536), 65536).dtype(), DType::kU16);
  EXPECT_EQ(TokenFile(write_small(65537), 65537).dtype(), DType::kI32);
  TokenFileWriter writer(path_, 131072, 0);
  writer.append(std::vector<int32_t>{65535, 65536, 131071});
  writer.end_document();
  writer.commit(0, 0);
  EXPECT_THAT(read(TokenFile(path_, 131072), 0, 3), ElementsAre(65535, 65536, 131071));
}

TEST_F(TokenFileTest, RefusesIdsBeyondTheVocabularyWhenWriting) {
  TokenFileWriter writer(path_, 300, 0);
  writer.append(std::vector<int32_t>{299});
  for (const int32_t id : {300, -1})
    EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { writer.append(std::vector<int32_t>{id}); }),
                AllOf(HasSubstr(fmt::format("token id {} at token 1", id)), HasSubstr("vocabulary of 300")));
}

TEST_F(TokenFileTest, RefusesIdsBeyondTheVocabularyWhenReading) {
  write_small(300);
  const uint16_t narrow = 300;
  overwrite(kHeaderBytes + 2 * 3, &narrow, 2);
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { read(TokenFile(path_, 1000), 0, 5); }),
              AllOf(HasSubstr("token id 300 at token 3"), HasSubstr("vocabulary of 300")));
  EXPECT_THAT(read(TokenFile(path_, 1000), 0, 3), ElementsAre(1, 2, 3));

  write_small(100000);
  const int32_t negative = -5;
  overwrite(kHeaderBytes + 4 * 4, &negative, 4);
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { read(TokenFile(path_, 100000), 2, 3); }),
              HasSubstr("token id -5 at token 4"));
}

TEST_F(TokenFileTest, RefusesAFileOfALargerVocabulary) {
  write_small(300);
  EXPECT_THAT(open_error(299), HasSubstr("vocabulary of 300, the model has 299"));
}

TEST_F(TokenFileTest, RefusesEveryTruncation) {
  const std::string good = read_text_file(write_small(300));
  for (size_t kept = 0; kept < good.size(); ++kept) {
    write_test_file(path_, good.substr(0, kept));
    EXPECT_NE(open_error(), "no error") << kept << " bytes";
  }
  write_test_file(path_, good + "12345678");
  EXPECT_THAT(open_error(), HasSubstr("cut off or changed"));
}

TEST_F(TokenFileTest, RefusesEveryFlippedByteOfHeaderAndIndex) {
  const std::string good = read_text_file(write_small(300));
  for (int64_t place = 0; place < static_cast<int64_t>(good.size()); ++place) {
    if (place >= kHeaderBytes && place < kHeaderBytes + 16) continue;  // the tokens and their padding
    std::string damaged = good;
    damaged[static_cast<size_t>(place)] ^= 0x40;
    write_test_file(path_, damaged);
    EXPECT_NE(open_error(), "no error") << "byte " << place;
  }
}

TEST_F(TokenFileTest, SaysWhatADamagedFileIs) {
  write_test_file(path_, "");
  EXPECT_THAT(open_error(), HasSubstr("(0 bytes) is no token file"));
  write_test_file(path_, "some text");
  EXPECT_THAT(open_error(), HasSubstr("no token file"));
  write_small(300);
  const uint32_t version = 9;
  overwrite(8, &version, 4);
  EXPECT_THAT(open_error(), HasSubstr("version 9"));
  write_small(300);
  const int64_t tokens = int64_t{1} << 62;
  overwrite(24, &tokens, 8);
  EXPECT_THAT(open_error(), HasSubstr("damaged header"));
}

TEST_F(TokenFileTest, IsNotThereBeforeCommit) {
  TokenFileWriter writer(path_, 300, 0);
  writer.append(std::vector<int32_t>(600000, 1));
  EXPECT_FALSE(fs::exists(path_));
}

// 2^31 + 100 tokens in a sparse file: the last token and the last document are found (B53).
TEST_F(TokenFileTest, ReachesBeyondTwoToThe31Tokens) {
  const int64_t num_tokens = (int64_t{1} << 31) + 100;
  const int64_t offsets[] = {0, num_tokens - 50, num_tokens};
  const int64_t index_begin = (kHeaderBytes + 2 * num_tokens + 7) / 8 * 8;
  std::byte header[kHeaderBytes] = {};
  std::memcpy(header, "STRATATK", 8);
  const uint32_t version_and_width[] = {1, 2};
  std::memcpy(header + 8, version_and_width, 8);
  const int64_t counts[] = {50257, num_tokens, 2};
  std::memcpy(header + 16, counts, 24);
  Checksum checksum;
  checksum.update(std::span<const std::byte>(header, 72));
  checksum.update(std::as_bytes(std::span(offsets)));
  const uint64_t digest = checksum.digest();
  std::memcpy(header + 72, &digest, 8);

  write_test_file(path_, "");
  fs::resize_file(path_, static_cast<uintmax_t>(index_begin + 24));
  overwrite(0, header, sizeof(header));
  overwrite(index_begin, offsets, sizeof(offsets));
  const uint16_t last[] = {41, 42};
  overwrite(kHeaderBytes + 2 * (num_tokens - 2), last, 4);

  const TokenFile file(path_, 50257);
  EXPECT_EQ(file.num_tokens(), num_tokens);
  EXPECT_EQ(file.offsets()[1], num_tokens - 50);
  EXPECT_THAT(read(file, num_tokens - 3, 3), ElementsAre(0, 41, 42));
}

class LlmcFileTest : public TokenFileTest {
 protected:
  void write_llmc(int32_t version, int32_t num_tokens, const std::vector<uint16_t>& ids) {
    std::vector<int32_t> header(256);
    header[0] = 20240520;
    header[1] = version;
    header[2] = num_tokens;
    std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
    bytes.append(reinterpret_cast<const char*>(ids.data()), 2 * ids.size());
    write_test_file(path_, bytes);
  }
};

TEST_F(LlmcFileTest, IsReadAsOneDocument) {
  write_llmc(1, 3, {50256, 1, 65535});
  const TokenFile file(path_, 65536);
  EXPECT_EQ(file.num_documents(), 1);
  EXPECT_THAT(file.offsets(), ElementsAre(0, 3));
  EXPECT_THAT(read(file, 0, 3), ElementsAre(50256, 1, 65535));
  const uint16_t stored[] = {50256, 1, 65535};
  EXPECT_EQ(file.fingerprint(), checksum_of(std::as_bytes(std::span(stored))));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { read(TokenFile(path_, 50257), 0, 3); }),
              HasSubstr("token id 65535 at token 2"));
}

TEST_F(LlmcFileTest, RefusesOtherVersionsAndWrongSizes) {
  write_llmc(7, 3, {1, 2, 3});
  EXPECT_THAT(open_error(), HasSubstr("llm.c version 7"));
  write_llmc(1, 4, {1, 2, 3});
  EXPECT_THAT(open_error(), HasSubstr("has 1030 bytes, its header (4 tokens) needs 1032"));
  write_llmc(1, -1, {});
  EXPECT_THAT(open_error(), HasSubstr("-1 tokens"));
  fs::resize_file(path_, 100);
  EXPECT_THAT(open_error(), HasSubstr("cut off"));
}

TEST_F(TokenFileTest, MovesKeepTheirViews) {
  std::vector<TokenFile> files;
  files.emplace_back(write_small(300), 300);
  files.emplace_back(write_small(300), 300);  // reallocates: the first one moves
  EXPECT_THAT(read(files[0], 0, 2), ElementsAre(1, 2));
  EXPECT_THAT(files[0].offsets(), ElementsAre(0, 3, 5));
}

TEST(TokenFileDeathTest, ReadingOutsideIsABug) {
  TemporaryFolder folder;
  TokenFileWriter writer(folder / "a", 300, 0);
  writer.append(std::vector<int32_t>{1, 2});
  EXPECT_DEATH(writer.commit(0, 0), "2 tokens after the last document");
  writer.end_document();
  writer.commit(0, 0);
  const TokenFile file(folder / "a", 300);
  std::vector<int32_t> out(2);
  EXPECT_DEATH(file.read(1, out), "tokens \\[1, 3\\) of 2");
}

}  // namespace
}  // namespace strata

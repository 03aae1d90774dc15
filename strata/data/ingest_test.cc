// SPDX-License-Identifier: Apache-2.0
#include "strata/data/ingest.h"

#include <gmock/gmock.h>

#include <chrono>

#include "strata/base/testing.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class IngestTest : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& contents) {
    write_test_file(folder_ / name, contents);
    return (folder_ / name).string();
  }
  IngestOptions options(int64_t vocab = 257) {
    return {.option = "data.train", .cache = folder_ / "cache", .name = "train", .vocab = vocab};
  }
  IngestResult run(const std::vector<std::string>& patterns) { return ingest(patterns, BytesTokenizer(), options()); }
  std::string error(const std::vector<std::string>& patterns) {
    return error_message(ErrorKind::kBadInput, [&] { run(patterns); });
  }
  static std::string decode(const TokenSet& tokens) {
    std::vector<int32_t> ids(static_cast<size_t>(tokens.num_tokens()));
    tokens.read(0, ids);
    return BytesTokenizer().decode(ids);
  }
  std::string in_folder(const std::string& pattern) { return (folder_ / pattern).string(); }

  TemporaryFolder folder_;
};

TEST_F(IngestTest, ATextFileIsOneDocument) {
  put("b.txt", "second\r\n\r\nfile\n");
  put("a.txt",
      "\xef\xbb\xbf"
      "first");
  const IngestResult result = run({in_folder("*.txt")});
  EXPECT_EQ(decode(result.tokens), "first<|endoftext|>second\n\nfile\n<|endoftext|>");
  EXPECT_EQ(result.report.files, 2);
  EXPECT_EQ(result.report.documents, 2);
  EXPECT_EQ(result.report.tokens, 5 + 1 + 13 + 1);
  EXPECT_EQ(result.report.bytes, 8 + 15);
  EXPECT_FALSE(result.report.reused);
  EXPECT_EQ(result.tokens.document(1).begin, 6);
}

TEST_F(IngestTest, AJsonlFileIsOneDocumentPerRecord) {
  const std::string jsonl = put("a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"\"}\n{\"text\":\"two\"}\n");
  const IngestResult result = run({jsonl, put("b.txt", "three")});
  EXPECT_EQ(decode(result.tokens), "one<|endoftext|>two<|endoftext|>three<|endoftext|>");
  EXPECT_EQ(result.report.documents, 3);
  EXPECT_EQ(result.report.empty_documents, 1);
}

TEST_F(IngestTest, TheSpecialTokenInTextStaysText) {
  const IngestResult result = run({put("a.txt", "a<|endoftext|>b")});
  EXPECT_EQ(result.report.tokens, 15 + 1);
  EXPECT_EQ(result.report.documents, 1);
}

TEST_F(IngestTest, LongTextIsStreamedWhole) {
  std::string text;
  while (text.size() < 3'000'000) text += fmt::format("line {} \xc3\xa9\r\n", text.size());
  const IngestResult result = run({put("a.txt", text)});
  std::erase(text, '\r');
  EXPECT_EQ(decode(result.tokens), text + "<|endoftext|>");
}

TEST_F(IngestTest, ReusesTheTokenFileOnlyOfTheSameSources) {
  const std::string a = put("a.txt", "text");
  EXPECT_FALSE(run({a}).report.reused);
  const IngestResult again = run({a});
  EXPECT_TRUE(again.report.reused);
  EXPECT_EQ(again.report.documents, 1);
  EXPECT_EQ(again.report.tokens, 5);
  EXPECT_EQ(again.report.bytes, 4);

  fs::last_write_time(a, fs::last_write_time(a) + std::chrono::seconds(1));
  EXPECT_FALSE(run({a}).report.reused) << "other modification time";
  put("a.txt", "texts");
  EXPECT_EQ(decode(run({a}).tokens), "texts<|endoftext|>");
  const std::string b = put("b.txt", "more");
  EXPECT_FALSE(run({a, b}).report.reused) << "another file";
  EXPECT_TRUE(run({a, b}).report.reused);
  EXPECT_FALSE(run({b, a}).report.reused) << "another order";
}

TEST_F(IngestTest, ADamagedTokenFileIsMadeAgain) {
  const std::string a = put("a.txt", "text");
  run({a});
  fs::resize_file(folder_ / "cache" / "train.tokens", 50);
  const IngestResult result = run({a});
  EXPECT_FALSE(result.report.reused);
  EXPECT_EQ(decode(result.tokens), "text<|endoftext|>");
}

TEST_F(IngestTest, ReportsProgressOverAllFiles) {
  IngestOptions with_progress = options();
  std::vector<int64_t> done;
  with_progress.progress = [&](int64_t bytes_done, int64_t bytes_total) {
    done.push_back(bytes_done);
    EXPECT_EQ(bytes_total, 7);
  };
  ingest({put("a.txt", "1234"), put("b.txt", "567")}, BytesTokenizer(), with_progress);
  EXPECT_THAT(done, ElementsAre(4, 7));
}

TEST_F(IngestTest, AFileThatChangesMeanwhileIsRefused) {
  const std::string a = put("a.txt", "1234");
  IngestOptions changing = options();
  changing.progress = [&](int64_t, int64_t) { put("a.txt", "12345"); };
  EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { ingest({a}, BytesTokenizer(), changing); }),
              HasSubstr("changed while"));
  EXPECT_FALSE(fs::exists(folder_ / "cache" / "train.tokens"));
}

TEST_F(IngestTest, AFailureLeavesNoTokenFile) {
  EXPECT_THAT(error({put("a.jsonl", "{\"text\":\"one\"}\n{\"text\":1}\n")}), HasSubstr("a.jsonl:2:"));
  EXPECT_TRUE(fs::is_empty(folder_ / "cache"));
}

TEST_F(IngestTest, TokenFilesAreUsedInPlace) {
  run({put("a.txt", "text")});
  fs::rename(folder_ / "cache" / "train.tokens", folder_ / "mine.tokens");
  std::string llmc(1024, '\0');
  const int32_t header[] = {20240520, 1, 2};
  llmc.replace(0, 12, reinterpret_cast<const char*>(header), 12);
  put("theirs.bin", llmc + std::string("\x41\0\x42\0", 4));
  const IngestResult result = run({in_folder("mine.tokens"), in_folder("theirs.bin")});
  EXPECT_EQ(decode(result.tokens), "text<|endoftext|>AB");
  EXPECT_EQ(result.report.documents, 2);
  EXPECT_EQ(result.report.tokens, 7);
  EXPECT_TRUE(fs::is_empty(folder_ / "cache"));
}

TEST_F(IngestTest, TokensAreCheckedAgainstTheModel) {
  const std::string a = put("a.txt", "text");
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { ingest({a}, BytesTokenizer(), options(256)); }),
              HasSubstr("'bytes' has a vocabulary of 257, the model has 256"));
  run({a});
  fs::rename(folder_ / "cache" / "train.tokens", folder_ / "mine.tokens");
  EXPECT_THAT(
      error_message(ErrorKind::kBadInput, [&] { ingest({in_folder("mine.tokens")}, BytesTokenizer(), options(200)); }),
      HasSubstr("vocabulary of 257, the model has 200"));
}

TEST_F(IngestTest, WrongNamesAreRefused) {
  put("a.txt", "text");
  put("a.csv", "text");
  put("a.bin", "text");
  EXPECT_THAT(error({in_folder("b.txt")}), AllOf(HasSubstr("data.train"), HasSubstr("no file is called or matches")));
  EXPECT_THAT(error({in_folder("*.jsonl")}), HasSubstr("no file is called or matches"));
  EXPECT_THAT(error({in_folder("a.csv")}), HasSubstr("use .txt, .jsonl, .bin (llm.c) or .tokens"));
  EXPECT_THAT(error({folder_.path().string()}), HasSubstr("is a folder"));
  EXPECT_THAT(error({}), HasSubstr("names no file"));
  EXPECT_THAT(error({in_folder("a.txt"), in_folder("*.txt")}), HasSubstr("twice"));
  EXPECT_THAT(error({in_folder("a.txt"), in_folder("a.bin")}), HasSubstr("mixes 1 token files with 1 text files"));
  EXPECT_THAT(error({in_folder("a.bin")}), HasSubstr("no token file"));
}

TEST_F(IngestTest, NothingToLearnFromIsRefused) {
  EXPECT_THAT(error({put("a.jsonl", "{\"text\":\"\"}\n")}), HasSubstr("1 records in 1 files are all empty"));
  std::string llmc(1024, '\0');
  const int32_t header[] = {20240520, 1, 0};
  llmc.replace(0, 12, reinterpret_cast<const char*>(header), 12);
  EXPECT_THAT(error({put("empty.bin", llmc)}), HasSubstr("holds no tokens"));
}

TEST_F(IngestTest, ACacheThatCannotBeMadeIsNamed) {
  const std::string a = put("a.txt", "text");
  IngestOptions blocked = options();
  blocked.cache = folder_ / "a.txt" / "cache";
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { ingest({a}, BytesTokenizer(), blocked); }),
              HasSubstr("cannot create"));
}

}  // namespace
}  // namespace strata

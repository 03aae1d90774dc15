// SPDX-License-Identifier: Apache-2.0
#include "strata/data/token_set.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "strata/base/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Documents = std::vector<std::vector<int32_t>>;

class TokenSetTest : public ::testing::Test {
 protected:
  TokenFile write(const std::string& name, const Documents& documents) {
    TokenFileWriter writer(folder_ / name, 1000, 0);
    for (const auto& document : documents) {
      writer.append(document);
      writer.end_document();
    }
    writer.commit(0, 0);
    return TokenFile(folder_ / name, 1000);
  }
  // (1 2 3) (4) in one file, (5 6) in another.
  TokenSet two_files() {
    std::vector<TokenFile> files;
    files.push_back(write("a", {{1, 2, 3}, {4}}));
    files.push_back(write("b", {{5, 6}}));
    return TokenSet(std::move(files));
  }
  // Document i holds i * 10 + 0, 1, 2.
  TokenSet numbered(int64_t count) {
    Documents documents;
    for (int32_t i = 0; i < count; ++i) documents.push_back({i * 10, i * 10 + 1, i * 10 + 2});
    std::vector<TokenFile> files;
    files.push_back(write("numbered", documents));
    return TokenSet(std::move(files));
  }
  static std::vector<int32_t> all_of(const TokenSet& set) {
    std::vector<int32_t> out(static_cast<size_t>(set.num_tokens()));
    set.read(0, out);
    return out;
  }
  TemporaryFolder folder_;
};

TEST_F(TokenSetTest, ReadsAcrossFiles) {
  const TokenSet set = two_files();
  EXPECT_EQ(set.num_documents(), 3);
  EXPECT_THAT(all_of(set), ElementsAre(1, 2, 3, 4, 5, 6));
  std::vector<int32_t> middle(3);
  set.read(2, middle);
  EXPECT_THAT(middle, ElementsAre(3, 4, 5));
  EXPECT_EQ(set.document(2).begin, 4);
  EXPECT_EQ(set.document(2).num_tokens, 2);
}

TEST_F(TokenSetTest, ASliceCutsDocuments) {
  const TokenSet slice = two_files().slice_tokens(1, 5);
  EXPECT_THAT(all_of(slice), ElementsAre(2, 3, 4, 5));
  ASSERT_EQ(slice.num_documents(), 3);
  EXPECT_EQ(slice.document(0).num_tokens, 2);
  EXPECT_EQ(slice.document(1).begin, 2);
  EXPECT_EQ(slice.document(2).num_tokens, 1);
  EXPECT_THAT(all_of(slice.slice_tokens(1, 3)), ElementsAre(3, 4));
  EXPECT_THAT(all_of(two_files().slice_documents(1, 3)), ElementsAre(4, 5, 6));
}

TEST_F(TokenSetTest, SplitHoldsOutEvenlySpacedDocuments) {
  const SplitTokens split = split_validation(numbered(10), 0.2);
  EXPECT_THAT(all_of(split.validation), ElementsAre(20, 21, 22, 70, 71, 72));
  EXPECT_EQ(split.train.num_documents(), 8);
  std::vector<int32_t> together = all_of(split.train);
  EXPECT_EQ(std::ranges::count(together, 20), 0);
  std::ranges::copy(all_of(split.validation), std::back_inserter(together));
  std::ranges::sort(together);
  EXPECT_EQ(together, all_of(numbered(10)));
}

TEST_F(TokenSetTest, SplitOfOneDocumentTakesItsTail) {
  std::vector<int32_t> ids(100);
  for (int32_t i = 0; i < 100; ++i) ids[static_cast<size_t>(i)] = i;
  std::vector<TokenFile> files;
  files.push_back(write("one", {ids}));
  const SplitTokens split = split_validation(TokenSet(std::move(files)), 0.04);
  EXPECT_THAT(all_of(split.validation), ElementsAre(96, 97, 98, 99));
  EXPECT_EQ(split.train.num_tokens(), 96);
}

// 12 % of 4 documents is less than half a document: 12 % of the tokens instead of a whole one.
TEST_F(TokenSetTest, SplitOfFewDocumentsTakesTheTail) {
  std::vector<TokenFile> files;
  files.push_back(write("few", Documents(4, {1, 2, 3, 4, 5})));
  const SplitTokens split = split_validation(TokenSet(std::move(files)), 0.12);
  EXPECT_EQ(split.train.num_tokens(), 18);
  EXPECT_THAT(all_of(split.validation), ElementsAre(4, 5));
}

TEST_F(TokenSetTest, SplitRefusesTooFewTokens) {
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { split_validation(numbered(1), 0.1); }),
              AllOf(HasSubstr("validation_fraction = 0.1"), HasSubstr("3 tokens in 1 documents")));
}

// A missing shard or another split is another validation set (B51).
TEST_F(TokenSetTest, FingerprintFollowsTokensAndParts) {
  const TokenSet set = numbered(10);
  EXPECT_EQ(set.fingerprint(), numbered(10).fingerprint());
  EXPECT_NE(set.fingerprint(), numbered(9).fingerprint());
  EXPECT_NE(set.fingerprint(), set.slice_tokens(0, 29).fingerprint());
  EXPECT_NE(split_validation(set, 0.1).validation.fingerprint(), split_validation(set, 0.2).validation.fingerprint());
}

}  // namespace
}  // namespace strata

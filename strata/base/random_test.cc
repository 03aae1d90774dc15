// SPDX-License-Identifier: Apache-2.0
#include "strata/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace strata {
namespace {

// Known answers published with Random123 for philox4x32-10.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(MixKey, EveryPartAndTheOrderCount) {
  std::set<uint64_t> keys;
  for (uint64_t a = 0; a < 8; ++a)
    for (uint64_t b = 0; b < 8; ++b)
      for (uint64_t c = 0; c < 8; ++c)
        for (uint64_t d = 0; d < 8; ++d) keys.insert(mix_key(a, b, c, d));
  EXPECT_EQ(keys.size(), 4096u);
  EXPECT_EQ(mix_key(1, 2), mix_key(1, 2, 0, 0));
}

TEST(Uniform, BordersAndMoments) {
  EXPECT_EQ(uniform_from(0), 0.0f);
  EXPECT_EQ(uniform_from(~0u), 1.0f - 0x1p-24f);
  constexpr int kBlocks = 25000;  // 100000 words
  double sum = 0;
  std::vector<int> bins(16);
  for (int i = 0; i < kBlocks; ++i)
    for (const uint32_t word : philox(7, i, 0)) {
      const float value = uniform_from(word);
      sum += value;
      ++bins[static_cast<size_t>(value * 16)];
    }
  const double count = 4.0 * kBlocks;
  // Five standard deviations: the mean's is sqrt(1/12 / n), a bin's sqrt(n * 15) / 16.
  EXPECT_NEAR(sum / count, 0.5, 5 * std::sqrt(1.0 / 12 / count));
  for (const int bin : bins) EXPECT_NEAR(bin, count / 16, 5 * std::sqrt(count * 15) / 16);
}

TEST(Normal, MomentsAndExtremes) {
  constexpr int kBlocks = 25000;
  double sum = 0, squares = 0, cross = 0;
  for (int i = 0; i < kBlocks; ++i) {
    const PhiloxBlock words = philox(11, i, 1);
    const auto [a, b] = normal_from(words[0], words[1]);
    sum += a + b;
    squares += a * a + b * b;
    cross += a * b;
  }
  // Five standard deviations: of the mean 1/sqrt(n), of the variance sqrt(2/n), of the covariance sqrt(2/n) (n/2
  // pairs).
  const double count = 2.0 * kBlocks;
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(cross / (count / 2), 0, 5 * std::sqrt(2 / count));
  for (const uint32_t word : {0u, 1u, ~0u}) {
    const auto [a, b] = normal_from(word, 12345);
    EXPECT_TRUE(std::isfinite(a) && std::isfinite(b)) << word;
  }
}

TEST(Permute, IsABijection) {
  for (const uint64_t size : {1, 2, 3, 7, 16, 17, 100, 1000})
    for (const uint64_t key : {0, 1, 99}) {
      std::set<uint64_t> seen;
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t index = permute(i, size, key);
        EXPECT_LT(index, size);
        seen.insert(index);
      }
      EXPECT_EQ(seen.size(), size) << "key " << key;
    }
}

TEST(Permute, EveryPlaceIsAboutEquallyLikely) {
  constexpr int kKeys = 5000;
  for (const uint64_t size : {3, 10}) {
    std::vector<int> hits(size);
    for (int key = 0; key < kKeys; ++key) ++hits[permute(0, size, key)];
    const double p = 1.0 / static_cast<double>(size);
    for (const int hit : hits)
      EXPECT_NEAR(hit, kKeys * p, 5 * std::sqrt(kKeys * p * (1 - p)));  // five standard deviations
  }
}

TEST(Permute, DependsOnTheKeyAndReachesLargeSizes) {
  int moved = 0;
  for (uint64_t i = 0; i < 100; ++i) moved += permute(i, 1000, 1) != permute(i, 1000, 2);
  EXPECT_GT(moved, 90);
  EXPECT_LT(permute(5, ~0ull, 3), ~0ull);
}

TEST(PermuteDeathTest, RefusesAPositionOutside) { EXPECT_DEATH(permute(4, 4, 0), "position 4 of 4"); }

}  // namespace
}  // namespace strata

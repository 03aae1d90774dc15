// SPDX-License-Identifier: Apache-2.0
#include "strata/base/checksum.h"

#include <gtest/gtest.h>

#include <vector>

namespace strata {
namespace {

TEST(Checksum, OfNothingIsThePublishedValue) {
  EXPECT_EQ(checksum_of({}), 0x2d06800538d394c2u);  // XXH3_64bits of the empty input
  EXPECT_EQ(Checksum().digest(), 0x2d06800538d394c2u);
}

TEST(Checksum, DoesNotDependOnTheSplit) {
  std::vector<std::byte> bytes(10000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  Checksum split;
  for (size_t begin = 0; begin < bytes.size(); begin += 777)
    split.update(std::span(bytes).subspan(begin, std::min<size_t>(777, bytes.size() - begin)));
  EXPECT_EQ(split.digest(), checksum_of(bytes));
  bytes[9999] ^= std::byte{1};
  EXPECT_NE(split.digest(), checksum_of(bytes));
}

TEST(Checksum, HexKeepsLeadingZeros) { EXPECT_EQ(checksum_hex(0xab), "00000000000000ab"); }

}  // namespace
}  // namespace strata

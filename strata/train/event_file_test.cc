// SPDX-License-Identifier: Apache-2.0
#include "strata/train/event_file.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Crc32c, EqualsPublishedValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);            // the check value of the CRC catalogue
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(EventFile, EncodesAScalarByteForByte) {
  // Event{wall_time 1.0, step 300, summary{value{tag "ab", simple_value 0.5}}}, encoded by hand.
  const std::string event(
      "\x09\x00\x00\x00\x00\x00\x00\xf0\x3f"  // field 1, 8 bytes: 1.0
      "\x10\xac\x02"                          // field 2, varint: 300 = 0b10 0101100
      "\x2a\x0b"                              // field 5, 11 bytes: the summary
      "\x0a\x09"                              // field 1, 9 bytes: a value
      "\x0a\x02"                              // field 1, 2 bytes: the tag
      "ab"
      "\x15\x00\x00\x00\x3f",  // field 2, 4 bytes: 0.5f
      25);
  const std::string record = scalars_record(1.0, 300, {{"ab", 0.5}});
  ASSERT_EQ(record.size(), 8 + 4 + event.size() + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\x19\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, event.size()), event);
}

class BytesUpToStep : public ::testing::Test {
 protected:
  std::string first_ = version_record(1.0) + scalars_record(2.0, 1, {{"loss", 3.0}, {"norm", 1.0}});
  std::string second_ = scalars_record(3.0, 200, {{"loss", 2.0}});
  std::string all_ = first_ + second_;
};

TEST_F(BytesUpToStep, StopsBeforeALaterStep) {
  EXPECT_EQ(bytes_up_to_step(all_, 200), all_.size());
  EXPECT_EQ(bytes_up_to_step(all_, 199), first_.size());
  EXPECT_EQ(bytes_up_to_step(all_, 0), version_record(1.0).size());
  EXPECT_EQ(bytes_up_to_step("", 7), 0u);
}

TEST_F(BytesUpToStep, StopsBeforeARecordCutShort) {
  for (size_t length = first_.size(); length < all_.size(); ++length) {
    EXPECT_EQ(bytes_up_to_step(std::string_view(all_).substr(0, length), 200), first_.size()) << length;
  }
}

TEST_F(BytesUpToStep, StopsBeforeADamagedRecord) {
  for (size_t byte = first_.size(); byte < all_.size(); ++byte) {
    std::string damaged = all_;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 1);
    EXPECT_EQ(bytes_up_to_step(damaged, 200), first_.size()) << byte;
  }
}

}  // namespace
}  // namespace strata

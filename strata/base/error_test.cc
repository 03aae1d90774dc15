// SPDX-License-Identifier: Apache-2.0
#include "strata/base/error.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Error, CarriesKindAndMessage) {
  try {
    throw_bad_input("{} tokens do not fit {}", 3, 2);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_STREQ(error.what(), "3 tokens do not fit 2");
  }
  EXPECT_THROW(throw_failed_run("disk full"), Error);
}

TEST(CheckDeathTest, AbortsWithPlaceAndMessage) {
  EXPECT_DEATH(STRATA_CHECK(1 == 2, "rank {}", 7), "error_test.cc.*1 == 2.*rank 7");
}

}  // namespace
}  // namespace strata

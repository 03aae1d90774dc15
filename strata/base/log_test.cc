// SPDX-License-Identifier: Apache-2.0
#include "strata/base/log.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Log, WritesPlainLinesToStderr) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  log_info("{} tokens in {}", 12, "a {file}");
  log_warning("{} threads on {} cores", 4, 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "12 tokens in a {file}\nwarning: 4 threads on 2 cores\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

}  // namespace
}  // namespace strata

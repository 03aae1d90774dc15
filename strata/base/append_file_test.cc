// SPDX-License-Identifier: Apache-2.0
#include "strata/base/append_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/base/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(AppendFile, GrowsAndKeepsWhatIsThere) {
  TemporaryFolder folder;
  {
    AppendFile file(folder / "a");
    file.append("one\n");
    EXPECT_EQ(read_text_file(folder / "a"), "one\n");
  }
  AppendFile(folder / "a").append("two\n");
  EXPECT_EQ(read_text_file(folder / "a"), "one\ntwo\n");
}

TEST(AppendFile, NamesAMissingFolder) {
  TemporaryFolder folder;
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { AppendFile file(folder / "none/a"); }),
              AllOf(HasSubstr("cannot open"), HasSubstr("none/a")));
}

TEST(AppendFile, NamesAFullDisk) {
  EXPECT_THAT(error_message(ErrorKind::kFailedRun, [] { AppendFile("/dev/full").append("a"); }),
              AllOf(HasSubstr("cannot append to /dev/full"), HasSubstr("No space left")));
}

}  // namespace
}  // namespace strata

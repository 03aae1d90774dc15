// SPDX-License-Identifier: Apache-2.0
// What TensorBoard itself makes of the files is tested by tests/python/tensorboard_scalars.py.
#include "strata/train/tensorboard_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/base/testing.h"
#include "strata/train/event_file.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFirst = "events.out.tfevents.0000000001.strata";
constexpr const char* kSecond = "events.out.tfevents.0000000002.strata";

class TensorboardMetricsTest : public ::testing::Test {
 protected:
  void write_steps(int64_t resumed_step, int64_t last_step) {
    TensorboardMetrics writer(events_, resumed_step);
    for (StepMetrics metrics{.step = resumed_step + 1}; metrics.step <= last_step; ++metrics.step)
      writer.write(metrics);
  }
  // Whether a whole file ends before `step`, and not earlier.
  bool ends_with_step(const char* name, int64_t step) const {
    const std::string contents = read_text_file(events_ / name);
    return bytes_up_to_step(contents, step) == contents.size() &&
           bytes_up_to_step(contents, step - 1) < contents.size();
  }

  TemporaryFolder folder_;
  std::filesystem::path events_ = folder_ / "tensorboard";
};

TEST_F(TensorboardMetricsTest, WritesEveryColumnWithATag) {
  TensorboardMetrics writer(events_, 0);
  writer.write({.step = 1});
  const std::string contents = read_text_file(events_ / kFirst);
  EXPECT_THAT(contents, AllOf(HasSubstr("brain.Event:2"), HasSubstr("train/loss"), HasSubstr("seconds/eval")));
  EXPECT_THAT(contents, Not(HasSubstr("validation/loss")));
  writer.write({.step = 2, .validation_loss = 1.0});
  EXPECT_THAT(read_text_file(events_ / kFirst), HasSubstr("validation/loss"));
}

TEST_F(TensorboardMetricsTest, AResumeCutsTheEarlierFileAndStartsTheNext) {
  write_steps(0, 12);
  EXPECT_TRUE(ends_with_step(kFirst, 12));
  write_steps(10, 20);
  EXPECT_TRUE(ends_with_step(kFirst, 10));
  EXPECT_TRUE(ends_with_step(kSecond, 20));
}

TEST_F(TensorboardMetricsTest, LeavesFilesOfOtherProgramsAlone) {
  write_steps(0, 1);
  for (const char* name : {"events.out.tfevents.1700000000.host", "events.out.tfevents.7.strata", "notes.txt"}) {
    AppendFile(events_ / name).append("text");
  }
  write_steps(0, 1);
  EXPECT_TRUE(std::filesystem::exists(events_ / kSecond));
  for (const char* name : {"events.out.tfevents.1700000000.host", "events.out.tfevents.7.strata", "notes.txt"}) {
    EXPECT_EQ(read_text_file(events_ / name), "text");
  }
}

TEST_F(TensorboardMetricsTest, NamesAFolderThatCannotBe) {
  AppendFile(folder_ / "file").append("text");
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { TensorboardMetrics writer(folder_ / "file", 0); }),
              HasSubstr("/file"));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { TensorboardMetrics writer(folder_ / "none/events", 0); }),
              HasSubstr("none/events"));
}

}  // namespace
}  // namespace strata

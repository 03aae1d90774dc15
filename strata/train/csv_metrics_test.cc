// SPDX-License-Identifier: Apache-2.0
#include "strata/train/csv_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "strata/base/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kHeader =
    "step,tokens_seen,loss,learning_rate,grad_norm,tokens_per_second,mfu,memory_bytes,seconds_total,seconds_compute,"
    "seconds_data,seconds_save,seconds_eval,skipped_steps,validation_loss\n";

StepMetrics step_metrics(int64_t step, double loss) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.tokens_seen = 1000 * step;
  metrics.loss = loss;
  return metrics;
}

class CsvMetricsTest : public ::testing::Test {
 protected:
  void write_steps(int64_t resumed_step, int64_t last_step, double loss) {
    CsvMetrics csv(path_, resumed_step);
    for (int64_t step = resumed_step + 1; step <= last_step; ++step) csv.write(step_metrics(step, loss));
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> steps;
    for (const MetricPoint& point : read_csv_column(path_, "loss")) steps.push_back(point.step);
    return steps;
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "metrics.csv";
};

TEST_F(CsvMetricsTest, WritesEveryColumnExactly) {
  StepMetrics metrics{.step = 12,
                      .tokens_seen = 98304,
                      .loss = 0.1,
                      .learning_rate = 3e-4,
                      .grad_norm = 0.5,
                      .tokens_per_second = 15234.5,
                      .mfu = 0.412,
                      .memory_bytes = 327155712,
                      .seconds_total = 1.5,
                      .seconds_compute = 1.25,
                      .seconds_data = 0.125,
                      .seconds_save = 0.0625,
                      .seconds_eval = 0.03125,
                      .skipped_steps = 2,
                      .validation_loss = 3.25};
  CsvMetrics csv(path_, 11);
  csv.write(metrics);
  metrics.validation_loss.reset();
  csv.write(metrics);
  const std::string row = "12,98304,0.1,0.0003,0.5,15234.5,0.412,327155712,1.5,1.25,0.125,0.0625,0.03125,2,";
  EXPECT_EQ(read_text_file(path_), std::string(kHeader) + row + "3.25\n" + row + "\n");
}

TEST_F(CsvMetricsTest, EveryStepAppearsOnceAfterAResume) {
  write_steps(0, 12, 1.0);  // saved at 10, killed at 12
  write_steps(10, 20, 2.0);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20));
  const std::vector<MetricPoint> losses = read_csv_column(path_, "loss");
  EXPECT_EQ(losses[9], (MetricPoint{10, 1.0}));
  EXPECT_EQ(losses[10], (MetricPoint{11, 2.0}));
  EXPECT_EQ(read_csv_column(path_, "tokens_seen").back(), (MetricPoint{20, 20000}));
}

TEST_F(CsvMetricsTest, AFreshRunStartsOver) {
  write_steps(0, 3, 1.0);
  write_steps(0, 2, 2.0);
  EXPECT_THAT(read_csv_column(path_, "loss"), ElementsAre(MetricPoint{1, 2.0}, MetricPoint{2, 2.0}));
}

TEST_F(CsvMetricsTest, DropsARowCutShort) {
  write_steps(0, 2, 1.0);
  AppendFile(path_).append("3,30");
  EXPECT_THAT(steps(), ElementsAre(1, 2));
  write_steps(5, 6, 1.0);  // the cut row would be kept by its step
  EXPECT_THAT(steps(), ElementsAre(1, 2, 6));
}

TEST_F(CsvMetricsTest, KeepsNonFiniteValuesAndLeavesOutEmptyOnes) {
  {
    CsvMetrics csv(path_, 0);
    csv.write(step_metrics(1, std::numeric_limits<double>::quiet_NaN()));
    StepMetrics evaluated = step_metrics(2, std::numeric_limits<double>::infinity());
    evaluated.validation_loss = 2.5;
    csv.write(evaluated);
  }
  const std::vector<MetricPoint> losses = read_csv_column(path_, "loss");
  ASSERT_EQ(losses.size(), 2U);
  EXPECT_TRUE(std::isnan(losses[0].value));
  EXPECT_TRUE(std::isinf(losses[1].value));
  EXPECT_THAT(read_csv_column(path_, "validation_loss"), ElementsAre(MetricPoint{2, 2.5}));
}

TEST_F(CsvMetricsTest, RefusesAForeignFile) {
  AppendFile(path_).append("step,loss\n1,2\n");
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { CsvMetrics csv(path_, 1); }),
              AllOf(HasSubstr(path_.string()), HasSubstr("\"step,loss\""), HasSubstr("move the file away")));
  EXPECT_EQ(read_text_file(path_), "step,loss\n1,2\n");
}

TEST_F(CsvMetricsTest, NamesTheLineThatIsWrong) {
  write_steps(0, 1, 1.0);
  AppendFile(path_).append("two,1\n");
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { CsvMetrics csv(path_, 1); }),
              AllOf(HasSubstr("line 3"), HasSubstr("\"two\"")));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { read_csv_column(path_, "loss"); }),
              HasSubstr("line 3 has 2 cells instead of 15"));
}

TEST_F(CsvMetricsTest, RefusesAnUnknownColumn) {
  write_steps(0, 1, 1.0);
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { read_csv_column(path_, "los"); }),
              AllOf(HasSubstr("no column \"los\""), HasSubstr("step,tokens_seen,loss")));
}

}  // namespace
}  // namespace strata

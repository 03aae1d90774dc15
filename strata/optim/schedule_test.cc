// SPDX-License-Identifier: Apache-2.0
#include "strata/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "strata/base/error.h"

namespace strata {
namespace {

constexpr double kPeak = 3e-4;

std::vector<double> list(const ScheduleConfig& schedule, int64_t max_steps) {
  validate_schedule(schedule, kPeak, max_steps);
  std::vector<double> rates;
  for (int64_t step = 1; step <= max_steps; ++step) rates.push_back(learning_rate(schedule, kPeak, max_steps, step));
  return rates;
}

std::string refusal(const ScheduleConfig& schedule, double peak, int64_t max_steps) {
  try {
    validate_schedule(schedule, peak, max_steps);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
  return "";
}

// B43: the formulas of docs/optimizers.md, step by step, to the last bit; the peak and min_lr appear.
TEST(Schedule, LinearIsTheDocumentedList) {
  const double min = 3e-5, range = kPeak - min;
  EXPECT_EQ(
      list({ScheduleKind::kLinear, 4, 0, min}, 10),
      (std::vector<double>{kPeak * 1 / 4, kPeak * 2 / 4, kPeak * 3 / 4, kPeak, min + range * 5 / 6, min + range * 4 / 6,
                           min + range * 3 / 6, min + range * 2 / 6, min + range * 1 / 6, min}));
}

TEST(Schedule, CosineIsTheDocumentedList) {
  const double min = 3e-5, range = kPeak - min, pi = 3.141592653589793;
  EXPECT_EQ(list({ScheduleKind::kCosine, 2, 0, min}, 6),
            (std::vector<double>{kPeak * 1 / 2, kPeak, min + range * 0.5 * (1 + std::cos(pi * 1 / 4)),
                                 min + range * 0.5 * (1 + std::cos(pi * 2 / 4)),
                                 min + range * 0.5 * (1 + std::cos(pi * 3 / 4)), min}));
}

TEST(Schedule, WsdIsTheDocumentedList) {
  const double min = 3e-5, range = kPeak - min;
  EXPECT_EQ(
      list({ScheduleKind::kWsd, 2, 3, min}, 8),
      (std::vector<double>{kPeak * 1 / 2, kPeak, kPeak, kPeak, kPeak, min + range * 2 / 3, min + range * 1 / 3, min}));
}

TEST(Schedule, ConstantKeepsThePeak) {
  EXPECT_EQ(list({ScheduleKind::kConstant, 2, 0, 0.0}, 5),
            (std::vector<double>{kPeak / 2, kPeak, kPeak, kPeak, kPeak}));
}

TEST(Schedule, AShortDecayStaysAtTheFinalRate) {
  EXPECT_EQ(list({ScheduleKind::kLinear, 1, 2, 0.0}, 5), (std::vector<double>{kPeak, kPeak * 1 / 2, 0.0, 0.0, 0.0}));
}

// B45 (and B44): the rate is a function of the step alone, whoever asks, how often and in which order.
TEST(Schedule, AskingDoesNotAdvanceIt) {
  for (const ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kCosine, ScheduleKind::kWsd}) {
    const ScheduleConfig schedule = {kind, 3, 5, 0.0};
    const std::vector<double> once = list(schedule, 12);
    for (const int64_t times : {1, 4, 16})
      for (int64_t step = 12; step >= 1; --step)
        for (int64_t i = 0; i < times; ++i) EXPECT_EQ(learning_rate(schedule, kPeak, 12, step), once[step - 1]);
  }
}

// B46: edge values give finite rates in (0, peak] until the end, and never waste the first step.
TEST(Schedule, EdgeValuesAreSensible) {
  for (const ScheduleKind kind :
       {ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kCosine, ScheduleKind::kWsd})
    for (const int64_t total : {1, 2, 10})
      for (const int64_t warmup : {int64_t{0}, int64_t{1}, total}) {
        SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << " warm-up " << warmup << " of "
                                        << total);
        const std::vector<double> rates = list({kind, warmup, 0, 0.0}, total);
        EXPECT_GT(rates.front(), 0.0);
        EXPECT_THAT(rates, testing::Contains(kPeak));
        for (const double rate : rates) EXPECT_TRUE(rate >= 0.0 && rate <= kPeak) << rate;
        const bool decays = kind == ScheduleKind::kLinear || kind == ScheduleKind::kCosine;
        const int64_t at_peak = std::max<int64_t>(warmup, 1);
        EXPECT_EQ(rates.back(), decays && at_peak < total ? 0.0 : kPeak);
      }
  EXPECT_EQ(list({ScheduleKind::kWsd, 0, 1, 0.0}, 1), std::vector<double>{kPeak});
  EXPECT_EQ(list({ScheduleKind::kWsd, 0, 3, 0.0}, 3), (std::vector<double>{kPeak, kPeak * 1 / 2, 0.0}));
}

TEST(Schedule, RefusesWhatCannotBeFollowed) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal({ScheduleKind::kLinear, 11, 0, 0.0}, kPeak, 10),
              HasSubstr("warmup_steps 11 exceeds the 10 steps"));
  EXPECT_THAT(refusal({ScheduleKind::kWsd, 4, 7, 0.0}, kPeak, 10), HasSubstr("use at most 6 decay steps"));
  EXPECT_THAT(refusal({ScheduleKind::kCosine, 4, 7, 0.0}, kPeak, 10),
              HasSubstr("warmup_steps 4 + schedule.decay_steps 7"));
  EXPECT_THAT(refusal({ScheduleKind::kCosine, -1, 0, 0.0}, kPeak, 10), HasSubstr("warmup_steps -1"));
  EXPECT_THAT(refusal({ScheduleKind::kCosine, 0, 0, 1e-3}, kPeak, 10),
              HasSubstr("min_lr 0.001 must lie between 0 and optimizer.lr 0.0003"));
  EXPECT_THAT(refusal({ScheduleKind::kCosine, 0, 0, 0.0}, kPeak, 0), HasSubstr("a run of 0 steps"));
  EXPECT_THAT(refusal({ScheduleKind::kConstant, 0, 3, 0.0}, kPeak, 10),
              HasSubstr("never decays: schedule.decay_steps 3"));
  EXPECT_THAT(refusal({ScheduleKind::kConstant, 0, 0, 1e-5}, kPeak, 10), HasSubstr("schedule.min_lr 1e-05"));
  EXPECT_EQ(refusal({ScheduleKind::kWsd, 4, 6, kPeak}, kPeak, 10), "");
}

TEST(ScheduleDeathTest, StepsOutsideTheRunAreABug) {
  EXPECT_DEATH(learning_rate({}, kPeak, 10, 0), "step 0 of 10");
  EXPECT_DEATH(learning_rate({}, kPeak, 10, 11), "step 11 of 10");
}

}  // namespace
}  // namespace strata

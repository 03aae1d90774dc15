// SPDX-License-Identifier: Apache-2.0
#include "strata/train/console_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/base/testing_terminal.h"

namespace strata {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

StepMetrics step_metrics(int64_t step) {
  return {.step = step,
          .loss = 3.45214,
          .learning_rate = 2.9e-4,
          .grad_norm = 0.834,
          .tokens_per_second = 15234,
          .mfu = 0.4123,
          .memory_bytes = 312 << 20,
          .seconds_total = 0.5,
          .seconds_compute = 0.475,
          .seconds_data = 0.005};
}

TEST(ConsoleMetrics, PlainLine) {
  PlainOutput file;
  ConsoleMetrics console(file.out(), {.max_steps = 2000});
  console.write(step_metrics(120));
  // 1880 steps of 0.5 s.
  EXPECT_EQ(file.text(),
            "step 120/2000  loss 3.4521  lr 2.9e-04  norm 0.83  15.2k tok/s  mfu 41.2%  mem 312.0 MiB  "
            "compute 95% data 1% save 0%  eta 15 min 40 s\n");
}

TEST(ConsoleMetrics, PlainLinesComeEveryFewStepsAtEvaluationsAndAtTheEnd) {
  PlainOutput file;
  ConsoleMetrics console(file.out(), {.max_steps = 8, .every = 3});
  for (int64_t step = 1; step <= 8; ++step) {
    StepMetrics metrics = step_metrics(step);
    if (step == 4) metrics.validation_loss = 3.5;
    console.write(metrics);
  }
  const std::string text = file.text();
  for (const char* printed : {"step 3/8", "step 4/8  loss 3.4521  validation 3.5000  lr", "step 6/8", "step 8/8"}) {
    EXPECT_THAT(text, HasSubstr(printed));
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST(ConsoleMetrics, SharesAreOfAllStepsSinceTheLineBefore) {
  PlainOutput file;
  ConsoleMetrics console(file.out(), {.max_steps = 4, .every = 2});
  console.write(step_metrics(1));
  StepMetrics saving = step_metrics(2);
  saving.seconds_total = 1.5;
  saving.seconds_save = 0.8;
  saving.seconds_eval = 0.2;
  saving.skipped_steps = 1;
  console.write(saving);  // of 2 s: compute 0.95, data 0.01, save 0.8, eval 0.2; 2 steps to go at 1 s
  EXPECT_THAT(file.text(), EndsWith("  skipped 1  compute 48% data 0% save 40% eval 10%  eta 2.0 s\n"));
  console.write(step_metrics(3));
  console.write(step_metrics(4));
  EXPECT_THAT(file.text(), EndsWith("compute 95% data 1% save 0%  done\n"));
}

TEST(ConsoleMetrics, ATerminalHasOneLiveLineOfWholeFields) {
  PseudoTerminal terminal(70);
  ConsoleMetrics console(terminal.out(), {.max_steps = 200, .every = 50});
  console.write(step_metrics(100));
  EXPECT_EQ(terminal.text(), "\r[==========>         ] 50%  eta 50.0 s  step 100/200  loss 3.4521\x1b[K");
  console.write(step_metrics(101));
  EXPECT_THAT(terminal.text(), Not(HasSubstr("\n")));
  StepMetrics evaluated = step_metrics(102);
  evaluated.validation_loss = 3.5;
  console.write(evaluated);
  EXPECT_THAT(terminal.text(), testing::StartsWith("\r\x1b[Kstep 102/200  loss 3.4521  validation 3.5000\n\r[====="));
}

TEST(ConsoleMetrics, AWideTerminalShowsEveryField) {
  PseudoTerminal terminal(200);
  ConsoleMetrics console(terminal.out(), {.max_steps = 200});
  console.write(step_metrics(100));
  EXPECT_THAT(terminal.text(), EndsWith("compute 95% data 1% save 0%\x1b[K"));
}

TEST(ConsoleMetricsDeathTest, NeedsSteps) {
  EXPECT_DEATH(ConsoleMetrics(stdout, {.max_steps = 0}), "0 steps, a line every 1");
}

}  // namespace
}  // namespace strata

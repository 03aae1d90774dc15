// SPDX-License-Identifier: Apache-2.0
// What a run refuses before its first step, and what it finds and leaves in its folder (docs/formats/run-folder.md).
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tiny_run.h"

namespace strata::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const TrainConfig& config) {
  std::string message;
  captured_log([&] { message = error_message(ErrorKind::kBadInput, [&] { Trainer trainer(config); }); });
  return message;
}

TEST(RunFolder, ResumeMustAndNever) {
  TinyRun run;
  run.config.train.resume = ResumeMode::kMust;
  EXPECT_THAT(refusal(run.config),
              HasSubstr("train.resume is \"must\" and " + run.config.run.directory + " holds no checkpoint"));
  run.config.train.resume = ResumeMode::kNever;
  train(run.config, 2);
  EXPECT_THAT(refusal(run.config), HasSubstr("train.resume is \"never\" and " + run.config.run.directory +
                                             "/checkpoints holds checkpoints"));
  run.config.train.resume = ResumeMode::kMust;
  EXPECT_FALSE(train(run.config).stopped);
}

TEST(RunFolder, OtherDataAreRefused) {
  TinyRun run;
  train(run.config, 2);
  run.write_text(TinyRun::words(21));
  EXPECT_THAT(refusal(run.config), HasSubstr("was trained on data with fingerprint"));
}

TEST(RunFolder, ScheduleLongerThanTheEpochs) {
  TinyRun run;
  run.config.train.max_steps = 0;
  run.config.train.epochs = 1;  // 20 samples in batches of 2
  run.config.schedule.warmup_steps = 11;
  EXPECT_THAT(refusal(run.config), AllOf(HasSubstr("11"), HasSubstr("10")));
}

// The most trusted folder is the one that two processes write to.
TEST(RunFolder, OneProcessPerFolder) {
  TinyRun run;
  Trainer first(run.config);
  EXPECT_THAT(refusal(run.config), HasSubstr("another process trains in " + run.config.run.directory));
}

TEST(RunFolder, RemovesWhatKilledRunsLeft) {
  TinyRun run;
  train(run.config, 2);
  const std::filesystem::path folder = run.run_folder();
  std::filesystem::create_directory(folder / "model.tmp-17-0");
  write_test_file(folder / "model.tmp-17-0" / "config.json", "{");
  write_test_file(folder / "config.toml.tmp-17-0", "");
  write_test_file(folder / "tokens" / "train.tokens.tmp-17-1", "");
  write_test_file(folder / "notes.tmp-1-2", "not ours");
  std::filesystem::create_directory(folder / "checkpoints" / "step-00000003.tmp-writing");
  train(run.config);
  EXPECT_FALSE(std::filesystem::exists(folder / "model.tmp-17-0"));
  EXPECT_FALSE(std::filesystem::exists(folder / "config.toml.tmp-17-0"));
  EXPECT_FALSE(std::filesystem::exists(folder / "tokens" / "train.tokens.tmp-17-1"));
  EXPECT_FALSE(std::filesystem::exists(folder / "checkpoints" / "step-00000003.tmp-writing"));
  EXPECT_TRUE(std::filesystem::exists(folder / "notes.tmp-1-2"));
}

TEST(RunFolder, NameOfTheLog) {
  TinyRun run;
  run.config.log.metrics_csv = "steps.csv";
  train(run.config);
  EXPECT_EQ(read_csv_column(run.run_folder() / "steps.csv", "loss").size(), 10u);
  EXPECT_FALSE(std::filesystem::exists(run.run_folder() / "metrics.csv"));
  run.config.log.metrics_csv = "";
  run.config.run.directory = run.folder() / "silent";
  train(run.config);
  EXPECT_FALSE(std::filesystem::exists(run.run_folder() / "metrics.csv"));
  EXPECT_FALSE(std::filesystem::exists(run.run_folder() / "loss.svg"));
  EXPECT_TRUE(std::filesystem::exists(run.run_folder() / "model" / "model.safetensors"));
}

Plan plan_of(const TinyRun& run, int64_t dp) {
  Plan plan = single_rank_plan(read_model_spec(run.config.model.config), ActivationPolicy::kKeep, 2, 1, 1);
  plan.num_ranks = dp;
  for (auto& layer : plan.layers) layer.dp = dp;
  return plan;
}

TEST(RunFolder, PlanAndBatchMustAgree) {
  TinyRun run;
  write_test_file(run.folder() / "plan.json", to_json(plan_of(run, 1)).dump());
  run.config.parallel.plan = run.folder() / "plan.json";
  run.config.batch.micro = 4;
  EXPECT_THAT(refusal(run.config),
              AllOf(HasSubstr("batch.micro 4"), HasSubstr("micro_batch 2 x accumulation 1 x dp 1 = 2")));
  run.config.batch.micro = 2;
  EXPECT_FALSE(train(run.config).stopped);
}

TEST(RunFolder, PlanForSeveralRanksIsRefused) {
  TinyRun run;
  write_test_file(run.folder() / "plan.json", to_json(plan_of(run, 2)).dump());
  run.config.parallel.plan = run.folder() / "plan.json";
  EXPECT_THAT(refusal(run.config), HasSubstr("has 2 ranks and 1 run: start it with --ranks 2"));
}

}  // namespace
}  // namespace strata::testing

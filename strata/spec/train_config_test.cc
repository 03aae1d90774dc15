// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "strata/base/error.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Overrides = std::vector<std::pair<std::string, std::string>>;

// The smallest valid config, as overrides: the TOML text may then open any section.
const Overrides kMinimal = {
    {"model.config", "gpt2"}, {"data.train", "a.txt"}, {"batch.global", "8"}, {"train.max_steps", "10"}};

TrainConfig parse(const std::string& text = "", const Overrides& overrides = {}) {
  Overrides all = kMinimal;
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse_train_config(text, "config.toml", all);
}

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

std::string refusal(const std::string& more, const Overrides& overrides = {}) {
  return refusal_of([&] { parse(more, overrides); });
}

TEST(TrainConfig, MinimalConfigHasTheDefaults) {
  TrainConfig expected;
  expected.model.config = "gpt2";
  expected.data.train = {"a.txt"};
  expected.batch.global = 8;
  expected.train.max_steps = 10;
  EXPECT_EQ(parse(), expected);
}

TEST(TrainConfig, ReadsEveryType) {
  const TrainConfig config = parse(R"(
[run]
seed = 9_000_000_000
[model]
precision = "bf16"
[data]
validation = "b.txt"
sampling = "document"
[optimizer]
kind = "sgd"
lr = 1
momentum = 0.9
no_decay = ["*.bias", "h.?.ln*"]
[schedule]
kind = "wsd"
decay_steps = 3
[train]
resume = "must"
resume_lr_from_checkpoint = true
[memory]
device = "8GiB"
)");
  EXPECT_EQ(config.run.seed, 9'000'000'000u);
  EXPECT_EQ(config.model.precision, Precision::kBF16);
  EXPECT_THAT(config.data.validation, ElementsAre("b.txt"));
  EXPECT_EQ(config.data.sampling, Sampling::kDocument);
  EXPECT_EQ(config.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.optimizer.momentum, 0.9);
  EXPECT_THAT(config.optimizer.no_decay, ElementsAre("*.bias", "h.?.ln*"));
  EXPECT_EQ(config.schedule.kind, ScheduleKind::kWsd);
  EXPECT_EQ(config.train.resume, ResumeMode::kMust);
  EXPECT_TRUE(config.train.resume_lr_from_checkpoint);
  EXPECT_EQ(config.memory.device, int64_t{8} << 30);
}

TEST(TrainConfig, OverridesWinAndAreReadByType) {
  const TrainConfig config = parse("", {{"optimizer.lr", "3e-3"},
                                        {"data.train", "b.txt,c.txt"},
                                        {"data.validation", ""},
                                        {"log.profile", "true"},
                                        {"log.tensorboard", "false"},
                                        {"memory.device", "1MiB"},
                                        {"run.directory", "42"},
                                        {"model.precision", "bf16"},
                                        {"train.max_steps", "20"},
                                        {"train.max_steps", "30"}});
  EXPECT_EQ(config.optimizer.lr, 3e-3);
  EXPECT_THAT(config.data.train, ElementsAre("b.txt", "c.txt"));
  EXPECT_TRUE(config.data.validation.empty());
  EXPECT_TRUE(config.log.profile);
  EXPECT_FALSE(config.log.tensorboard);
  EXPECT_EQ(config.memory.device, 1 << 20);
  EXPECT_EQ(config.run.directory, "42");
  EXPECT_EQ(config.model.precision, Precision::kBF16);
  EXPECT_EQ(config.train.max_steps, 30);
}

TEST(TrainConfig, RefusesUnknownKeysWithASuggestion) {
  EXPECT_EQ(refusal("[optimizer]\nlr = 1e-3\nlearning_rte = 1\n"),
            "unknown key optimizer.learning_rte in config.toml line 3: did you mean optimizer.lr?");
  EXPECT_THAT(refusal("[optimizer]\nbeta3 = 1\n"), HasSubstr("did you mean optimizer.beta1?"));
  EXPECT_THAT(refusal("[train]\nbatch_size = 8\n"),
              HasSubstr("unknown key train.batch_size in config.toml line 2: did you mean batch.global?"));
  EXPECT_THAT(refusal("[data]\nmax_seq_length = 8\n"), HasSubstr("did you mean data.seq?"));
  EXPECT_THAT(refusal("[optimizer]\nzzzzzz = 8\n"), testing::EndsWith("optimizer.zzzzzz in config.toml line 2"));
  EXPECT_EQ(refusal("", {{"optimizer.lrr", "1"}}),
            "unknown key optimizer.lrr in --optimizer.lrr=1: did you mean optimizer.lr?");
  EXPECT_THAT(refusal("", {{"lr", "1"}}), HasSubstr("did you mean optimizer.lr?"));
  EXPECT_THAT(refusal_of([] { parse_train_config("learning_rate = 1", "x", {}); }),
              AllOf(HasSubstr("line 1"), HasSubstr("optimizer.lr?")));
  EXPECT_THAT(refusal("[optimizer.groups]\nx = 1\n"), HasSubstr("unknown key optimizer.groups"));
}

TEST(TrainConfig, RefusesUnknownSections) {
  EXPECT_THAT(refusal("[optim]\nlr = 1\n"),
              HasSubstr("unknown section optim in config.toml line 1: did you mean optimizer?"));
  EXPECT_THAT(refusal("[optimiser]\nlr = 1\n"), HasSubstr("did you mean optimizer?"));
  EXPECT_THAT(refusal("[deepspeed]\nlr = 1\n"), HasSubstr("the sections are run, model, data"));
  EXPECT_THAT(refusal("log = 3\n"), AllOf(HasSubstr("log in config.toml line 1 is an integer"), HasSubstr("[log]")));
}

TEST(TrainConfig, RefusesWrongTypes) {
  EXPECT_EQ(refusal("[optimizer]\nlr = \"1e-3\"\n"),
            "optimizer.lr in config.toml line 2: expected number above 0, found a text");
  EXPECT_THAT(refusal("[train]\nsave_every = 1.5\n"), HasSubstr("expected integer at least 0, found a number"));
  EXPECT_THAT(refusal("[log]\nprofile = 1\n"), HasSubstr("expected true or false, found an integer"));
  EXPECT_THAT(refusal("[run]\ndirectory = 1\n"), HasSubstr("expected text, found an integer"));
  EXPECT_THAT(refusal("[run]\ndirectory = 2020-01-01\n"), HasSubstr("found a date or time"));
  EXPECT_THAT(refusal("[data]\nvalidation = 1\n"), HasSubstr("expected list of texts, found an integer"));
  EXPECT_THAT(refusal("[data]\nvalidation = [\"a\", 1]\n"), HasSubstr("found an integer in it"));
  EXPECT_THAT(refusal("[memory]\ndevice = true\n"), HasSubstr("expected size such as \"8GiB\""));
  EXPECT_THAT(refusal("[memory]\ndevice = \"8 gigs\"\n"),
              AllOf(HasSubstr("memory.device in config.toml line 2"), HasSubstr("gigs")));
  EXPECT_THAT(refusal("", {{"train.max_steps", "ten"}}),
              HasSubstr("train.max_steps in --train.max_steps=ten: expected integer"));
  EXPECT_THAT(refusal("", {{"train.max_steps", "10.5"}}), HasSubstr("expected integer"));
  EXPECT_THAT(refusal("", {{"optimizer.lr", "fast"}}), HasSubstr("expected number above 0"));
  EXPECT_THAT(refusal("", {{"log.profile", "yes"}}), HasSubstr("expected true or false"));
}

TEST(TrainConfig, RefusesValuesOutOfRange) {
  EXPECT_EQ(refusal("[optimizer]\nlr = 0.0\n"), "optimizer.lr = 0.0 in config.toml line 2: must be number above 0");
  EXPECT_THAT(refusal("[optimizer]\nlr = nan\n"), HasSubstr("must be number above 0"));
  EXPECT_THAT(refusal("[optimizer]\nlr = inf\n"), HasSubstr("must be number above 0"));
  EXPECT_THAT(refusal("[optimizer]\nbeta2 = 1.0\n"), HasSubstr("at least 0 and below 1"));
  EXPECT_THAT(refusal("[run]\nseed = -1\n"), HasSubstr("run.seed = -1"));
  EXPECT_THAT(refusal("[run]\nthreads = 5000\n"), HasSubstr("at least 0 and at most 4096"));
  EXPECT_THAT(refusal("[train]\nkeep_last = 0\n"), HasSubstr("at least 1"));
  EXPECT_THAT(refusal("[schedule]\nkind = \"cosin\"\n"),
              AllOf(HasSubstr("\"cosin\""), HasSubstr("one of constant, linear, cosine, wsd")));
  EXPECT_THAT(refusal("", {{"parallel.activations", "some"}}), HasSubstr("one of keep, selective, full"));
  EXPECT_THAT(refusal("", {{"batch.global", "-8"}}), HasSubstr("batch.global = -8"));
}

TEST(TrainConfig, RefusesMissingOptions) {
  const auto without = [](const std::string& key) {
    std::string text;
    for (const char* line :
         {"model.config = \"gpt2\"\n", "data.train = [\"a\"]\n", "batch.global = 8\n", "train.max_steps = 1\n"}) {
      if (std::string(line).rfind(key, 0) != 0) text += line;
    }
    return refusal_of([&] { parse_train_config(text, "config.toml", {}); });
  };
  EXPECT_THAT(without("model.config"), HasSubstr("config.toml: model.config is required"));
  EXPECT_THAT(without("data.train"), HasSubstr("data.train is required"));
  EXPECT_THAT(without("batch.global"), HasSubstr("the batch size is missing"));
  EXPECT_THAT(without("train.max_steps"), HasSubstr("give train.max_steps or train.epochs"));
  EXPECT_THAT(refusal("", {{"run.directory", ""}}), HasSubstr("run.directory is required"));
}

TEST(TrainConfig, RefusesContradictions) {
  EXPECT_THAT(refusal("", {{"train.epochs", "2"}}), HasSubstr("train.max_steps = 10 and train.epochs = 2"));
  EXPECT_THAT(refusal("", {{"schedule.min_lr", "1"}}),
              AllOf(HasSubstr("schedule.min_lr = 1"), HasSubstr("optimizer.lr = 0.0003")));
  EXPECT_THAT(refusal("", {{"schedule.warmup_steps", "11"}}),
              AllOf(HasSubstr("11"), HasSubstr("train.max_steps = 10")));
  EXPECT_THAT(refusal("", {{"schedule.kind", "wsd"}}), HasSubstr("needs schedule.decay_steps"));
  EXPECT_THAT(refusal("", {{"schedule.kind", "wsd"}, {"schedule.decay_steps", "8"}, {"schedule.warmup_steps", "3"}}),
              AllOf(HasSubstr("warmup_steps = 3"), HasSubstr("decay_steps = 8"), HasSubstr("max_steps = 10")));
  EXPECT_THAT(refusal("", {{"train.eval_every", "5"}, {"data.validation_fraction", "0"}}),
              HasSubstr("no validation data"));
  EXPECT_THAT(refusal("", {{"log.metrics_csv", "/tmp/x.csv"}}),
              AllOf(HasSubstr("/tmp/x.csv"), HasSubstr("run.directory = \"runs/train\"")));
  EXPECT_THAT(refusal("", {{"batch.micro", "3"}}),
              AllOf(HasSubstr("batch.global 8 is not a multiple of 3"), HasSubstr("6 or 9")));
  parse("", {{"schedule.warmup_steps", "10"}});  // all warm-up is odd but possible
}

TEST(TrainConfig, RefusesOptionsWithoutEffect) {
  EXPECT_EQ(refusal("", {{"optimizer.momentum", "0.9"}}),
            "config.toml: optimizer.momentum = 0.9 has no effect with optimizer.kind = \"adamw\"; it needs "
            "optimizer.kind = sgd");
  EXPECT_THAT(refusal("", {{"optimizer.kind", "sgd"}, {"optimizer.beta1", "0.8"}}), HasSubstr("optimizer.beta1 = 0.8"));
  EXPECT_THAT(refusal("", {{"parallel.plan", "plan.json"}, {"parallel.activations", "full"}}),
              HasSubstr("it needs parallel.plan = auto"));
  EXPECT_THAT(refusal("", {{"data.validation", "b.txt"}, {"data.validation_fraction", "0.2"}}),
              HasSubstr("it needs data.validation = []"));
  EXPECT_THAT(refusal("", {{"schedule.kind", "constant"}, {"schedule.min_lr", "1e-5"}}),
              HasSubstr("linear or cosine or wsd"));
  EXPECT_THAT(refusal("", {{"train.resume", "never"}, {"train.resume_lr_from_checkpoint", "true"}}),
              HasSubstr("train.resume"));
}

TEST(TrainConfig, RefusesBrokenTomlAndMissingFiles) {
  EXPECT_THAT(refusal("[optimizer\n"), HasSubstr("config.toml line 1 is not valid TOML"));
  EXPECT_THAT(refusal("[run]\nseed = 1\nseed = 2\n"), HasSubstr("is not valid TOML"));
  EXPECT_THAT(refusal_of([] { read_train_config("/nonexistent/config.toml", {}); }),
              HasSubstr("cannot read /nonexistent/config.toml"));
  EXPECT_THAT(refusal_of([] { read_train_config(testing::TempDir(), {}); }), HasSubstr("cannot read"));
}

TEST(TrainConfig, ReadsFiles) {
  const std::string path = testing::TempDir() + "strata_train_config_test.toml";
  std::ofstream(path) << "model.config = \"gpt2\"\ndata.train = [\"a.txt\"]\nbatch.global = 8\ntrain.max_steps = 10\n";
  EXPECT_EQ(read_train_config(path, {{"run.seed", "7"}}), parse("", {{"run.seed", "7"}}));
  std::filesystem::remove(path);
}

TEST(TrainConfig, TomlRoundTrips) {
  EXPECT_EQ(parse_train_config(to_toml(parse()), "again", {}), parse());
  const TrainConfig config = parse("", {{"run.directory", "a \"quoted\" \\ folder\n"},
                                        {"optimizer.kind", "sgd"},
                                        {"optimizer.lr", "0.1"},
                                        {"optimizer.weight_decay", "1e-30"},
                                        {"optimizer.decay", "*.weight,a"},
                                        {"schedule.kind", "linear"},
                                        {"schedule.min_lr", "0.0123456789012345678"},
                                        {"log.tensorboard", "false"},
                                        {"memory.device", "3GiB"},
                                        {"model.precision", "bf16"}});
  EXPECT_EQ(parse_train_config(to_toml(config), "again", {}), config);
}

TEST(BatchTriangle, AllEightSubsetsOverThreeRanks) {
  const auto resolve = [](int64_t global, int64_t micro, int64_t accumulation) {
    return resolve_batch({.global = global, .micro = micro, .accumulation = accumulation}, 3);
  };
  const BatchSizes expected{24, 4, 2};
  EXPECT_EQ(resolve(24, 4, 2), expected);
  EXPECT_EQ(resolve(24, 4, 0), expected);
  EXPECT_EQ(resolve(24, 0, 2), expected);
  EXPECT_EQ(resolve(0, 4, 2), expected);
  EXPECT_EQ(resolve(24, 0, 0), (BatchSizes{24, 8, 1}));
  EXPECT_EQ(resolve(0, 4, 0), (BatchSizes{12, 4, 1}));
  EXPECT_THAT(refusal_of([&] { resolve(0, 0, 2); }), HasSubstr("batch.accumulation = 2 alone"));
  EXPECT_THAT(refusal_of([&] { resolve(0, 0, 0); }), HasSubstr("the batch size is missing"));
}

TEST(BatchTriangle, ImpossibleOnesShowTheEquation) {
  const auto refused = [](const BatchConfig& given) { return refusal_of([&] { resolve_batch(given, 3); }); };
  EXPECT_EQ(refused({.global = 8}),
            "batch.global 8 = batch.micro m x batch.accumulation a x 3 data-parallel ranks: batch.global 8 is not a "
            "multiple of 3; 6 or 9 "
            "would work");
  EXPECT_THAT(refused({.global = 24, .micro = 5}),
              AllOf(HasSubstr("batch.micro 5"), HasSubstr("not a multiple of 15; 15 or 30")));
  EXPECT_THAT(refused({.global = 24, .accumulation = 3}), HasSubstr("not a multiple of 9; 18 or 27"));
  EXPECT_THAT(refused({.global = 2, .micro = 1}), HasSubstr("not a multiple of 3; 3 would work"));
  EXPECT_THAT(refused({.global = 24, .micro = 4, .accumulation = 3}), HasSubstr("does not hold: the right side is 36"));
}

}  // namespace
}  // namespace strata

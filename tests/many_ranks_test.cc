// SPDX-License-Identifier: Apache-2.0
// Whole runs with several ranks, which are threads here: training, evaluation, checkpoints, export, resuming with
// another number of ranks.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/ranks_run.h"

namespace strata::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ManyRanks, TrainAsOne) {
  TinyRun one;
  use_many_samples(one);
  train(one.config);
  ASSERT_EQ(one.column("loss").size(), 10u);
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(text_of(layout));
    TinyRun many;
    use_many_samples(many);
    const TrainResult result = train_ranks(many.config, layout);
    EXPECT_EQ(result.step, 10);
    expect_same_course(many, one);
    EXPECT_TRUE(std::filesystem::exists(many.run_folder() / "model" / "model.safetensors"));
  }
}

// Two stages of four ranks; every layer shares the batch in another way, also at the border of the stages.
TEST(ManyRanks, LayersMayShareTheBatchDifferently) {
  TinyRun one;
  use_many_samples(one);
  train(one.config);
  TinyRun many;
  use_many_samples(many);
  const std::string plan = many.folder() / "plan.json";
  write_test_file(plan, R"({"num_ranks": 8, "stage_layers": [3, 3], "micro_batch": 2, "accumulation": 3,
    "reduce": "last", "threads": 1, "sequence_parallel": true, "layers": [
      {"dp": 2, "tp": 2}, {"dp": 1, "cp": 2, "tp": 2, "zero": 3}, {"dp": 4, "zero": 2},
      {"dp": 2, "cp": 2, "context": "heads", "activations": "full"}, {"tp": 4, "zero": 1}, {"dp": 2, "tp": 2}]})");
  // What two ranks began goes on with that plan, and what it has saved goes on with four ranks.
  EXPECT_TRUE(train_ranks(many.config, {2, 2}, 3).stopped);
  many.config.parallel.plan = plan;
  EXPECT_TRUE(train_ranks(many.config, {8}, 7).stopped);
  many.config.parallel.plan = "auto";
  EXPECT_FALSE(train_ranks(many.config, {4, 2, 1, 3}).stopped);
  expect_same_course(many, one);
  EXPECT_TRUE(std::filesystem::exists(many.run_folder() / "model" / "model.safetensors"));
}

// A signal to any rank stops all, and what 4 ranks saved the next layout goes on from. B25, B26, B27.
TEST(ManyRanks, ResumeWithAnotherLayout) {
  TinyRun one;
  use_many_samples(one);
  train(one.config);
  for (size_t index = 0; index < kLayouts.size(); ++index) {
    SCOPED_TRACE(index);
    TinyRun parts;
    use_many_samples(parts);
    EXPECT_TRUE(train_ranks(parts.config, kLayouts[index], 5).stopped);
    EXPECT_EQ(parts.checkpoints().back(), 5);
    EXPECT_FALSE(train_ranks(parts.config, kLayouts[(index + 1) % kLayouts.size()]).stopped);
    expect_same_course(parts, one);
  }
}

TEST(ManyRanks, SameLayoutResumesBitEqual) {
  const Layout layout = {4, 2, 1, 2};
  TinyRun whole, parts;
  use_many_samples(whole);
  use_many_samples(parts);
  train_ranks(whole.config, layout);
  train_ranks(parts.config, layout, 5);
  train_ranks(parts.config, layout);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string name = fmt::format("rank-{:05}.bin", rank);
    EXPECT_EQ(read_bytes(parts.checkpoint(10) / name), read_bytes(whole.checkpoint(10) / name)) << name;
  }
  EXPECT_EQ(parts.metrics(), whole.metrics());
}

std::string refusal_of_ranks(const TinyRun& run, const std::function<void(TrainConfig&)>& change_last) {
  try {
    run_ranks(2, [&](int rank, Comm& comm) {
      TrainConfig config = run.config;
      if (rank == 1) change_last(config);
      Trainer trainer(config, &comm);
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ManyRanks, DifferencesAreFound) {
  TinyRun run;
  use_many_samples(run);
  write_test_file(run.folder() / "other.txt", TinyRun::words(30));
  EXPECT_THAT(refusal_of_ranks(run, [](TrainConfig& config) { config.optimizer.lr = 1; }),
              HasSubstr("the config of rank 1 differs from that of rank 0"));
  nlohmann::json model = nlohmann::json::parse(read_bytes(run.folder() / "config.json"));
  model["attn_pdrop"] = 0.5;
  const std::filesystem::path other = run.folder() / "other.json";
  write_test_file(other, model.dump());
  EXPECT_THAT(refusal_of_ranks(run, [&](TrainConfig& config) { config.model.config = other; }),
              HasSubstr("rank 1 differs"));
}

TEST(ManyRanks, WhatOneRankRefusesNamesIt) {
  TinyRun run;
  use_many_samples(run);
  EXPECT_THAT(refusal_of_ranks(run, [](TrainConfig& config) { config.memory.device = 1024; }),
              StartsWith("rank 1: the plan needs"));
  run.config.memory.device = 1024;
  EXPECT_THAT(refusal_of_ranks(run, [](TrainConfig&) {}), StartsWith("the plan needs"));
}

TEST(ManyRanks, SizesThatDoNotFitAreRefused) {
  TinyRun run;
  use_many_samples(run);
  const auto refusal = [&](const Layout& layout) {
    try {
      train_ranks(run.config, layout);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal({5, 2, 2}),
              HasSubstr("5 ranks are no multiple of parallel.tp 2 x parallel.cp 1 x parallel.pp 2 = 4"));
  EXPECT_THAT(refusal({4, 1, 1, 0, false, 3}), HasSubstr("parallel.cp 3 x parallel.pp 1 = 3: start a multiple of 3"));
  EXPECT_THAT(refusal({8, 2, 1, 1, false, 4, "heads"}),
              HasSubstr("4 heads and 4 kv_heads over tp 2 x cp 4 with context \"heads\"; cp may be 1, 2, or use"));
  EXPECT_THAT(refusal({3, 3}), HasSubstr("4 heads over tp 3; tp may be 1, 2, 4"));
  EXPECT_THAT(refusal({8, 1, 8}), HasSubstr("parallel.pp is 8 and the model has 6 layers"));
  EXPECT_THAT(refusal({5}), HasSubstr("12"));  // samples over 5 data-parallel ranks
}

// B73: the ranks that wait say where, and for whom.
TEST(ManyRanks, AMissingRankIsNamedWithTheInstruction) {
  for (const bool overlap : {false, true}) {
    HarnessOptions options;
    options.model = tiny_gpt2();
    Plan plan = single_rank_plan(options.model, ActivationPolicy::kKeep, 1, 1, 1);
    plan.num_ranks = 2;
    plan.overlap = overlap;
    for (LayerPlan& layer : plan.layers) layer.dp = 2;
    std::vector<std::unique_ptr<Comm>> comms = make_local_comms(2, 0.3);
    std::vector<std::thread> threads;
    std::string message = "none";
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        ModelHarness harness(options, plan, *comms[static_cast<size_t>(rank)]);
        harness.fill(make_documents(2, 8, 97, 1));
        if (rank == 1) return;
        try {
          harness.step(0.1);
        } catch (const Error& error) {
          message = error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(message, HasSubstr("step program, rank 0, all-reduce"));
    EXPECT_THAT(message, HasSubstr("for ranks 1 of"));
  }
}

}  // namespace
}  // namespace strata::testing

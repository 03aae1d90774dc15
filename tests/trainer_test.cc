// SPDX-License-Identifier: Apache-2.0
// Whole runs: resuming, schedule, data order, bad steps, what a run folder holds.
#include <gmock/gmock.h>

#include <cmath>
#include <csignal>
#include <limits>

#include "strata/data/sampler.h"
#include "strata/hf/model_folder.h"
#include "strata/train/evaluation.h"
#include "tests/tiny_run.h"

namespace strata::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kBF16};

// 7 samples in batches of 2 for 3 epochs: 11 steps, the last with one sample; epochs end inside of steps 4 and 7.
void use_epochs(TinyRun& run) {
  run.write_text(TinyRun::words(7));
  run.config.train.max_steps = 0;
  run.config.train.epochs = 3;
}

// What training leaves: checkpoint, exported weights, log.
struct Outcome {
  std::string states;
  std::string weights;
  std::vector<std::string> metrics;
};

Outcome outcome_of(const TinyRun& run, int64_t last_step) {
  return {read_bytes(run.checkpoint(last_step) / "rank-00000.bin"),
          read_bytes(run.run_folder() / "model" / "model.safetensors"), run.metrics()};
}

void use_everything(TinyRun& run, Precision precision) {
  use_epochs(run);
  run.set_dropout(0.1);
  write_test_file(run.folder() / "validation.txt", TinyRun::words(5));
  run.config.data.validation = {run.folder() / "validation.txt"};
  run.config.model.precision = precision;
  run.config.train.eval_every = 2;
  run.config.train.save_every = 3;
}

TEST(Trainer, ResumedIsBitEqual) {
  for (Precision precision : kPrecisions) {
    TinyRun whole;
    use_everything(whole, precision);
    EXPECT_FALSE(train(whole.config).stopped);
    const Outcome expected = outcome_of(whole, 11);
    ASSERT_EQ(expected.metrics.size(), 12u);  // and the header
    TinyRun parts;
    use_everything(parts, precision);
    EXPECT_EQ(train(parts.config, 2).step, 2);
    EXPECT_EQ(train(parts.config, 5).step, 5);  // in the second epoch
    EXPECT_EQ(train(parts.config, 8).step, 8);
    EXPECT_FALSE(train(parts.config).stopped);
    const Outcome found = outcome_of(parts, 11);
    EXPECT_EQ(found.states, expected.states);
    EXPECT_EQ(found.weights, expected.weights);
    EXPECT_EQ(found.metrics, expected.metrics);
  }
}

// B30: in a fresh process frozen tensors are what they were, and so is the training of the others.
TEST(Trainer, ResumedWithFrozenTensorsIsBitEqual) {
  for (Precision precision : kPrecisions) {
    TinyRun whole, parts;
    for (TinyRun* run : {&whole, &parts}) {
      use_everything(*run, precision);
      run->config.model.frozen = {"embedding.*", "attention.0.*", "mlp.1.*bias"};
    }
    EXPECT_FALSE(train(whole.config).stopped);
    EXPECT_EQ(train(parts.config, 5).step, 5);
    EXPECT_FALSE(train(parts.config).stopped);
    const Outcome expected = outcome_of(whole, 11), found = outcome_of(parts, 11);
    EXPECT_EQ(found.states, expected.states);
    EXPECT_EQ(found.weights, expected.weights);
    EXPECT_EQ(found.metrics, expected.metrics);
  }
}

// A process that dies between two checkpoints leaves rows that its successor writes again. B38.
TEST(Trainer, KilledBetweenCheckpointsIsBitEqual) {
  TinyRun whole;
  use_everything(whole, Precision::kF32);
  train(whole.config);
  TinyRun killed;
  use_everything(killed, Precision::kF32);
  try {
    Trainer trainer(killed.config);
    trainer.on_step([](const StepMetrics& metrics) {
      if (metrics.step == 8) throw_failed_run("killed");
    });
    trainer.train();
  } catch (const Error&) {
  }
  EXPECT_EQ(killed.metrics().size(), 9u);
  EXPECT_EQ(killed.checkpoints(), (std::vector<int64_t>{3, 6}));
  train(killed.config);
  EXPECT_EQ(outcome_of(killed, 11).states, outcome_of(whole, 11).states);
  EXPECT_EQ(killed.metrics(), whole.metrics());
}

// B38: every step once, tokens counted on.
TEST(Trainer, LogGoesOn) {
  TinyRun run;
  train(run.config, 5);
  train(run.config);
  std::vector<MetricPoint> tokens;
  for (int64_t step = 1; step <= 10; ++step) tokens.push_back({step, 32.0 * static_cast<double>(step)});
  EXPECT_EQ(run.column("tokens_seen"), tokens);
}

// B39, B40: what is saved is what was trained, and loading gives it back.
TEST(Trainer, EvaluationSurvivesReloading) {
  for (Precision precision : kPrecisions) {
    TinyRun run;
    use_everything(run, precision);
    double validation = 0;
    std::vector<std::vector<float>> live, initial;
    {
      Trainer trainer(run.config);
      initial = parameters(trainer);
      for (int step = 0; step < 5; ++step) trainer.step();
      validation = trainer.evaluate();
      EXPECT_EQ(trainer.evaluate(), validation);
      live = parameters(trainer);
      trainer.save();
      trainer.write_model();
    }
    EXPECT_NE(live, initial);
    {
      Trainer loaded(run.config);
      EXPECT_EQ(loaded.state().step, 5);
      EXPECT_EQ(loaded.evaluate(), validation);
      EXPECT_EQ(parameters(loaded), live);
    }
    TrainConfig exported = run.config;  // the same from the model folder
    exported.model.weights = run.run_folder() / "model";
    exported.run.directory = run.folder() / "exported";
    Trainer from_folder(exported);
    EXPECT_EQ(from_folder.evaluate(), validation);
    EXPECT_EQ(parameters(from_folder), live);
  }
}

// The model folder is written from the newest checkpoint, whichever the last step left or a resumed run found: the
// bytes are those of the masters in memory.
TEST(Trainer, TheModelFolderIsTheTrainedModel) {
  for (Precision precision : kPrecisions) {
    TinyRun run;
    run.config.model.precision = precision;
    run.config.train.save_every = 4;
    run.config.train.keep_last = 1;
    train(run.config);
    const std::string trained = read_bytes(run.run_folder() / "model" / "model.safetensors");
    Trainer trainer(run.config);
    const Workload& workload = trainer.workload();
    const auto source = [&](int layer, int parameter) { return trainer.executor().master(layer, parameter); };
    write_model_folder(run.folder() / "memory", {workload.model, workload.layers, source, DType::kF32, {}},
                       ExistingTarget::kRefuse);
    EXPECT_TRUE(read_bytes(run.folder() / "memory" / "model.safetensors") == trained);
    std::filesystem::remove_all(run.run_folder() / "model");
    EXPECT_NE(trainer.train().model_folder, "");  // nothing is left to train
    EXPECT_TRUE(read_bytes(run.run_folder() / "model" / "model.safetensors") == trained);
  }
}

TEST(TrainerDeathTest, ThereIsNoModelBeforeTheFirstCheckpoint) {
  TinyRun run;
  Trainer trainer(run.config);
  EXPECT_DEATH(trainer.write_model(), "there is no checkpoint to write a model from");
}

TEST(Trainer, PrecisionMayChange) {
  TinyRun run;
  train(run.config, 4);
  run.config.model.precision = Precision::kBF16;
  const std::string log = captured_log([&] { EXPECT_FALSE(train(run.config).stopped); });
  EXPECT_THAT(log, HasSubstr("model.precision: \"f32\" so far, \"bf16\" from here on"));
}

TEST(Trainer, KeepsTheLastCheckpoints) {
  TinyRun run;
  run.config.train.save_every = 2;
  run.config.train.keep_last = 3;
  train(run.config);
  EXPECT_THAT(run.checkpoints(), ElementsAre(6, 8, 10));
}

TEST(Trainer, SignalsSaveAndStop) {
  for (int signal : {SIGTERM, SIGINT}) {
    TinyRun run;
    const TrainResult result = train(run.config, 3, signal);
    EXPECT_TRUE(result.stopped);
    EXPECT_EQ(result.step, 3);
    EXPECT_EQ(result.model_folder, "");
    EXPECT_THAT(run.checkpoints(), ElementsAre(3));
    EXPECT_FALSE(train(run.config).stopped);
  }
}

TEST(Trainer, UserSignalSavesAndGoesOn) {
  TinyRun run;
  run.config.train.keep_last = 100;
  EXPECT_FALSE(train(run.config, 4, SIGUSR1).stopped);
  EXPECT_THAT(run.checkpoints(), ElementsAre(4, 10));
}

TEST(Trainer, ASignalAtTheLastStepChangesNothing) {
  TinyRun run;
  const TrainResult result = train(run.config, 10);
  EXPECT_FALSE(result.stopped);
  EXPECT_NE(result.model_folder, "");
}

// B42: the config's learning rate counts, or the checkpoint's; what happens is printed.
TEST(Trainer, ChangedLearningRate) {
  for (bool from_checkpoint : {false, true}) {
    TinyRun run;
    run.config.optimizer.lr = 1e-4;
    run.config.schedule.kind = ScheduleKind::kConstant;
    train(run.config, 5);
    run.config.optimizer.lr = 5e-5;
    run.config.train.resume_lr_from_checkpoint = from_checkpoint;
    const std::string log = captured_log([&] { train(run.config, 7); });
    EXPECT_THAT(log, HasSubstr(fmt::format("learning rate: checkpoint 0.0001, config 5e-05, using {}",
                                           from_checkpoint ? "0.0001" : "5e-05")));
    const double used = from_checkpoint ? 1e-4 : 5e-5;
    EXPECT_EQ(run.column("learning_rate")[5], (MetricPoint{6, used}));
    // The choice is what the next checkpoint holds: asked for again, it is no change.
    run.config.optimizer.lr = used;
    EXPECT_THAT(captured_log([&] { train(run.config); }), Not(HasSubstr("learning rate:")));
    EXPECT_EQ(run.column("learning_rate")[9], (MetricPoint{10, used}));
  }
}

// B44, B45: neither a restart nor accumulation moves the schedule.
TEST(Trainer, ScheduleCountsStepsOnly) {
  TinyRun whole;
  whole.config.schedule.warmup_steps = 3;
  train(whole.config);
  TinyRun restarted;
  restarted.config.schedule.warmup_steps = 3;
  train(restarted.config, 5);
  train(restarted.config);
  TinyRun accumulated;
  accumulated.config.schedule.warmup_steps = 3;
  accumulated.config.batch.accumulation = 4;
  train(accumulated.config);
  EXPECT_EQ(whole.column("learning_rate")[2], (MetricPoint{3, 1e-2}));
  EXPECT_EQ(restarted.column("learning_rate"), whole.column("learning_rate"));
  EXPECT_EQ(accumulated.column("learning_rate"), whole.column("learning_rate"));
}

TEST(Trainer, OptionsThatChangedAreListed) {
  TinyRun run;
  train(run.config, 3);
  run.config.run.seed = 4;
  run.config.optimizer.weight_decay = 0.5;
  const std::string log = captured_log([&] { train(run.config); });
  EXPECT_THAT(log, AllOf(HasSubstr("run.seed: 1 so far, 4 from here on"),
                         HasSubstr("optimizer.weight_decay: 0.1 so far, 0.5 from here on")));
  EXPECT_THAT(log, Not(HasSubstr("train.max_steps")));
}

// The samples of steps of one sample each, found by their tokens.
std::vector<int64_t> sample_ids(Trainer& trainer, int64_t steps) {
  std::vector<int64_t> samples;
  for (int64_t step = 0; step < steps; ++step) {
    trainer.step();
    const MicroBatch batch = trainer.executor().batch_storage(0, 0).resize(16, 1);
    samples.push_back(batch.ids[0] - 'a');
  }
  return samples;
}

// B47: 7 samples, 3 epochs, stopped in the second; sample i begins with the i-th letter.
TEST(Trainer, OrderOfSamplesGoesOn) {
  TinyRun run;
  std::string text;
  for (char letter = 'a'; letter < 'h'; ++letter) text += std::string(1, letter) + "               ";
  run.write_text(text);
  run.config.batch.micro = 1;
  run.config.train.max_steps = 0;
  run.config.train.epochs = 3;
  std::vector<int64_t> expected, found;
  for (int64_t place = 0; place < 21; ++place)
    expected.push_back(SampleOrder::shuffled(7, run.config.run.seed).at(place));
  {
    Trainer trainer(run.config);
    found = sample_ids(trainer, 10);
    trainer.save();
  }
  Trainer trainer(run.config);
  const std::vector<int64_t> rest = sample_ids(trainer, 11);
  found.insert(found.end(), rest.begin(), rest.end());
  EXPECT_EQ(found, expected);
  const auto epoch = [&](int index) {
    return std::vector<int64_t>(found.begin() + 7 * index, found.begin() + 7 * (index + 1));
  };
  EXPECT_THAT(epoch(0), ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(epoch(1), ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_NE(epoch(0), epoch(1));
}

// Losses and norms of a run of `samples` samples, cut into micro-batches.
struct Curve {
  std::vector<MetricPoint> losses, norms, tokens;
};

Curve run_in_epochs(double epochs, int64_t micro, int64_t accumulation) {
  TinyRun run;
  run.write_text(TinyRun::words(10));
  run.config.batch.micro = micro;
  run.config.batch.accumulation = accumulation;
  run.config.optimizer.kind = OptimizerKind::kSgd;
  run.config.train.max_steps = 0;
  run.config.train.epochs = epochs;
  train(run.config);
  return {run.column("loss"), run.column("grad_norm"), run.column("tokens_seen")};
}

// B8: batches run across epoch borders; only the last batch of a run is short, and it is normalised by its own tokens.
TEST(Trainer, OnlyTheLastBatchIsShort) {
  for (const auto& [epochs, tokens] : std::vector<std::pair<double, std::vector<MetricPoint>>>{
           {2, {{1, 64}, {2, 128}, {3, 192}, {4, 256}, {5, 320}}}, {1, {{1, 64}, {2, 128}, {3, 160}}}}) {
    const Curve small = run_in_epochs(epochs, 1, 4);
    const Curve large = run_in_epochs(epochs, 4, 1);
    EXPECT_EQ(small.tokens, tokens);
    EXPECT_EQ(large.tokens, tokens);
    for (size_t step = 0; step < tokens.size(); ++step) {
      // 5 steps of SGD in other orders of summation: docs/numerics.md. A gradient left over from the step before would
      // add its size.
      EXPECT_NEAR(small.losses[step].value, large.losses[step].value, 1e-5 * large.losses[step].value);
      EXPECT_NEAR(small.norms[step].value, large.norms[step].value, 1e-5 * large.norms[step].value);
    }
  }
}

// A batch of another size after a resume: the run still ends with the last sample of its epochs.
TEST(Trainer, BatchSizeMayChange) {
  TinyRun run;
  use_epochs(run);
  train(run.config, 5);
  run.config.batch.micro = 3;
  const TrainResult result = train(run.config);
  EXPECT_EQ(result.step, 9);  // 10 samples so far, 11 left: 3 + 3 + 3 + 2
  EXPECT_EQ(run.column("tokens_seen").back().value, 21 * 16);
}

// B49, B50: every document once, whatever the batch.
TEST(Trainer, EvaluationCountsEverySample) {
  std::vector<EvaluationResult> results;
  for (int64_t micro : {1, 3, 4, 10}) {
    TinyRun run;
    std::string documents;
    int64_t targets = 0;
    for (int64_t index = 0; index < 10; ++index) {
      documents += "{\"text\": \"" + std::string(static_cast<size_t>(1 + index), 'x') + "\"}\n";
      targets += 1 + index;
    }
    write_test_file(run.folder() / "validation.jsonl", documents);
    run.config.data.validation = {run.folder() / "validation.jsonl"};
    run.config.data.sampling = Sampling::kDocument;
    run.config.batch.micro = micro;
    Trainer trainer(run.config);
    Ranks one(nullptr);
    results.push_back(evaluate(trainer.executor(), trainer.workload().evaluation(), trainer.workload().input.plan,
                               *trainer.corpus().validation, 0, one));
    EXPECT_EQ(results.back().samples, 10);
    EXPECT_EQ(results.back().counted, targets);
    EXPECT_NEAR(results.back().loss, results.front().loss,
                1e-6 * results.front().loss);  // f32 products of other shapes
  }
}

// B61: a batch without a counted token.
TEST(Trainer, NothingToCountSkipsTheStep) {
  TinyRun run;
  Trainer trainer(run.config);
  trainer.step();
  const auto before = parameters(trainer);
  MicroBatch batch = trainer.executor().batch_storage(0, 0).resize(16, 1);
  for (int32_t& target : batch.targets) target = -1;
  batch.counted = 0;
  StepMetrics metrics;
  const std::string log = captured_log([&] { metrics = trainer.step_on({{batch}, 1, 1, {16}, 16, 0}); });
  EXPECT_THAT(log, HasSubstr("step 2: no counted token in the batch; the step is skipped, 1 skipped so far"));
  EXPECT_EQ(parameters(trainer), before);
  EXPECT_EQ(metrics.loss, 0);
  EXPECT_EQ(metrics.grad_norm, 0);  // not the norm of the step before
  EXPECT_EQ(metrics.skipped_steps, 1);
  EXPECT_EQ(trainer.state().update_step, 1);
  EXPECT_EQ(trainer.step().skipped_steps, 1);
  EXPECT_NE(parameters(trainer), before);
}

// Spoils one weight of mlp.1, where all gradients come from.
void spoil(Trainer& trainer) {
  trainer.executor().parameter(4, 2).row<float>(0)[0] = std::numeric_limits<float>::infinity();
}

// B22: the message names step and tensor; the log counts.
TEST(Trainer, BadGradientsAreNamedAndCounted) {
  TinyRun run;
  run.config.train.max_steps = 3;
  const std::string log = captured_log([&] {
    Trainer trainer(run.config);
    spoil(trainer);
    trainer.train();
  });
  EXPECT_THAT(log, ::testing::ContainsRegex("step 1: the gradient of [a-z.0-9]+ is not finite"));
  EXPECT_THAT(log, HasSubstr("step 3: "));
  EXPECT_EQ(run.column("skipped_steps"), (std::vector<MetricPoint>{{1, 1}, {2, 2}, {3, 3}}));
}

TEST(Trainer, OnlyBadGradientsEndTheRun) {
  TinyRun run;
  run.config.train.max_steps = 200;
  run.config.train.save_every = 50;
  const auto body = [&] {
    Trainer trainer(run.config);
    spoil(trainer);
    trainer.train();
  };
  std::string message;
  captured_log([&] { message = error_message(ErrorKind::kFailedRun, body); });
  EXPECT_THAT(message, HasSubstr("step 100: 100 steps in a row had a gradient that is not finite"));
  EXPECT_THAT(run.checkpoints(), ElementsAre(50));
}

// B79: a tiny model with evaluation and saving; pages of the allocator may come, megabytes may not.
TEST(Trainer, MemoryDoesNotGrow) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep freed memory";
#endif
  TinyRun run;
  use_everything(run, Precision::kF32);
  run.config.train.epochs = 0;
  run.config.train.max_steps = 1000;
  run.config.train.eval_every = 20;
  run.config.train.save_every = 50;
  run.config.log.tensorboard = true;
  train(run.config);
  const std::vector<MetricPoint> memory = run.column("memory_bytes");
  EXPECT_LT(memory[999].value - memory[199].value, 2.0 * (1 << 20));
}

}  // namespace
}  // namespace strata::testing

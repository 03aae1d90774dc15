// SPDX-License-Identifier: Apache-2.0
// Whole runs with several ranks, which are threads here: their layouts, and that their course is that of one rank.
// Included by tests only.
#pragma once

#include <gtest/gtest.h>

#include <csignal>

#include "tests/model_harness.h"
#include "tests/tiny_run.h"

namespace strata::testing {

struct Layout {
  int ranks = 1;
  int64_t tp = 1, pp = 1, zero = 0;
  bool sequence_parallel = false;
  int64_t cp = 1;
  std::string context = "ring";
};

inline const std::vector<Layout> kLayouts = {{1},
                                             {2, 1, 1, 1},
                                             {3, 1, 1, 3},
                                             {4, 2, 2, 2},
                                             {4, 2, 1, 3, true},
                                             {6, 1, 2, 1},
                                             {4, 1, 1, 1, false, 2},
                                             {6, 2, 1, 3, false, 3},
                                             {4, 2, 1, 2, true, 2, "heads"}};

// Batches of 12 samples, the last one of 8; 5 evaluated samples do not divide by anything here.
inline void use_many_samples(TinyRun& run) {
  run.write_text(TinyRun::words(56));
  write_test_file(run.folder() / "validation.txt", TinyRun::words(5));
  run.set_dropout(0.1);
  run.config.data.validation = {run.folder() / "validation.txt"};
  run.config.batch = {.global = 12};
  run.config.train.max_steps = 0;
  run.config.train.epochs = 2;  // 10 steps
  run.config.train.eval_every = 3;
  run.config.train.save_every = 4;
  run.config.optimizer.lr = 3e-3;
}

inline void set_layout(TrainConfig& config, const Layout& layout) {
  config.parallel.tp = layout.tp;
  config.parallel.pp = layout.pp;
  config.parallel.zero = layout.zero;
  config.parallel.cp = layout.cp;
  config.parallel.context = layout.context;
  config.parallel.sequence_parallel = layout.sequence_parallel;
}

inline std::string text_of(const Layout& layout) {
  return fmt::format("{} ranks, tp {}, cp {}, pp {}, ZeRO {}", layout.ranks, layout.tp, layout.cp, layout.pp,
                     layout.zero);
}

inline TrainResult train_ranks(TrainConfig config, const Layout& layout, int64_t stop_after = 0) {
  set_layout(config, layout);
  TrainResult result;
  run_ranks(layout.ranks, [&](int rank, Comm& comm) {
    Trainer trainer(config, &comm);
    if (rank == layout.ranks - 1)
      trainer.on_step([&](const StepMetrics& metrics) {
        if (metrics.step == stop_after) std::raise(SIGTERM);
      });
    const TrainResult own = trainer.train();
    if (rank == 0) result = own;
  });
  return result;
}

// AdamW at 3e-3 over 10 steps: the sums' order is seen in the sixth digit at most.
constexpr double kClose = 1e-5;

inline void expect_same_course(const TinyRun& run, const TinyRun& reference) {
  for (const char* name : {"loss", "grad_norm", "validation_loss", "learning_rate", "tokens_seen"}) {
    const std::vector<MetricPoint> points = run.column(name), expected = reference.column(name);
    ASSERT_EQ(points.size(), expected.size()) << name;
    for (size_t index = 0; index < points.size(); ++index) {
      EXPECT_EQ(points[index].step, expected[index].step) << name;
      EXPECT_NEAR(points[index].value, expected[index].value, kClose * expected[index].value)
          << name << " of step " << points[index].step;
    }
  }
}

}  // namespace strata::testing

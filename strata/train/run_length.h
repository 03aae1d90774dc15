// SPDX-License-Identifier: Apache-2.0
// How long a run is: train.max_steps, or train.epochs of the data. Batches run across epoch borders; only the last
// batch of a run in epochs may be short. Counted from where the run stands, so a resumed run with another batch size
// still ends with its last sample. Pure.
#pragma once

#include <cstdint>

#include "strata/spec/train_config.h"

namespace strata {

struct RunPlace {
  int64_t step = 0;
  int64_t samples_seen = 0;
};

// The last step of the run. Throws Error when the epochs hold less than one sample.
int64_t last_step(const TrainLoopConfig& train, int64_t dataset_samples, int64_t global_batch, RunPlace place);

// Samples of the step after `place`: the global batch, or what the run has left.
int64_t next_batch_samples(const TrainLoopConfig& train, int64_t dataset_samples, int64_t global_batch, RunPlace place);

}  // namespace strata

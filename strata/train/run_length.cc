// SPDX-License-Identifier: Apache-2.0
#include "strata/train/run_length.h"

#include <algorithm>
#include <cmath>

#include "strata/base/error.h"

namespace strata {
namespace {

int64_t samples_left(const TrainLoopConfig& train, int64_t dataset_samples, RunPlace place) {
  const int64_t samples = std::llround(train.epochs * static_cast<double>(dataset_samples));
  if (samples < 1)
    throw_bad_input("train.epochs = {} of {} samples is less than one sample: train.epochs = {} would be one",
                    train.epochs, dataset_samples, 1.0 / static_cast<double>(dataset_samples));
  return std::max<int64_t>(0, samples - place.samples_seen);
}

}  // namespace

int64_t last_step(const TrainLoopConfig& train, int64_t dataset_samples, int64_t global_batch, RunPlace place) {
  if (train.max_steps > 0) return train.max_steps;
  return place.step + (samples_left(train, dataset_samples, place) + global_batch - 1) / global_batch;
}

int64_t next_batch_samples(const TrainLoopConfig& train, int64_t dataset_samples, int64_t global_batch,
                           RunPlace place) {
  if (train.max_steps > 0) return global_batch;
  return std::min(global_batch, samples_left(train, dataset_samples, place));
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/run_length.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "strata/base/testing.h"

namespace strata {
namespace {

TrainLoopConfig epochs(double count) {
  TrainLoopConfig train;
  train.epochs = count;
  return train;
}

// Sample counts of all batches, from a place on.
std::vector<int64_t> batches(const TrainLoopConfig& train, int64_t samples, int64_t global_batch, RunPlace place) {
  std::vector<int64_t> sizes;
  const int64_t last = last_step(train, samples, global_batch, place);
  while (place.step < last) {
    sizes.push_back(next_batch_samples(train, samples, global_batch, place));
    place.step += 1;
    place.samples_seen += sizes.back();
  }
  return sizes;
}

TEST(RunLength, StepsAreWhatTheyAre) {
  TrainLoopConfig train;
  train.max_steps = 7;
  EXPECT_EQ(last_step(train, 10, 4, {}), 7);
  EXPECT_EQ(last_step(train, 10, 4, {9, 36}), 7);
  EXPECT_EQ(next_batch_samples(train, 10, 4, {6, 24}), 4);
}

TEST(RunLength, OnlyTheLastBatchIsShort) {
  EXPECT_EQ(batches(epochs(1), 10, 4, {}), (std::vector<int64_t>{4, 4, 2}));
  EXPECT_EQ(batches(epochs(2), 10, 4, {}), (std::vector<int64_t>{4, 4, 4, 4, 4}));
  EXPECT_EQ(batches(epochs(3), 7, 4, {}), (std::vector<int64_t>{4, 4, 4, 4, 4, 1}));
  EXPECT_EQ(batches(epochs(1), 3, 4, {}), (std::vector<int64_t>{3}));
}

// Parts of epochs are rounded to samples once, so that no step is left without any.
TEST(RunLength, PartsOfEpochs) {
  EXPECT_EQ(batches(epochs(0.14), 10, 1, {}), (std::vector<int64_t>{1}));
  EXPECT_EQ(batches(epochs(0.1 + 0.2), 10, 1, {}), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(batches(epochs(1.5), 5, 4, {}), (std::vector<int64_t>{4, 4}));
}

TEST(RunLength, AnotherBatchSizeEndsWithTheSameSample) {
  EXPECT_EQ(batches(epochs(2), 10, 8, {2, 8}), (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(batches(epochs(2), 10, 1, {3, 17}), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_TRUE(batches(epochs(1), 10, 1, {15, 15}).empty());  // the run was longer before
}

TEST(RunLength, LessThanOneSampleIsRefused) {
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [] { last_step(epochs(0.04), 10, 1, {}); }),
              ::testing::AllOf(::testing::HasSubstr("0.04 of 10 samples"), ::testing::HasSubstr("0.1 would be one")));
}

}  // namespace
}  // namespace strata

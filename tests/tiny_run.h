// SPDX-License-Identifier: Apache-2.0
// A run of seconds for tests of the trainer: a folder with a model of 2 layers on bytes, text, and a config that trains
// on it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/base/testing.h"
#include "strata/train/csv_metrics.h"
#include "strata/train/trainer.h"

namespace strata::testing {

class TinyRun {
 public:
  TinyRun();

  // Replaces the training text; sample i of 16 tokens begins at byte 16 i.
  void write_text(const std::string& text);
  // Words in a fixed random order: `samples` windows of 16 tokens, the last one whole.
  static std::string words(int64_t samples);
  // What the model's config.json holds besides its sizes.
  void set_dropout(double probability);

  std::filesystem::path folder() const { return folder_.path(); }
  std::filesystem::path run_folder() const { return config.run.directory; }
  std::filesystem::path checkpoint(int64_t step) const;
  // Steps of the checkpoints there are, in order.
  std::vector<int64_t> checkpoints() const;
  // The columns of metrics.csv that are neither time nor memory, row by row as they are written.
  std::vector<std::string> metrics() const;
  std::vector<MetricPoint> column(std::string_view name) const;

  TrainConfig config;

 private:
  TemporaryFolder folder_;
};

// Trains to the end, or until `stop_after` (0: never), when the process sends itself `signal`.
TrainResult train(const TrainConfig& config, int64_t stop_after = 0, int signal = 15);

// All parameters as f32, in the order of the model.
std::vector<std::vector<float>> parameters(Trainer& trainer);

std::string read_bytes(const std::filesystem::path& path);

// What `body` writes to stderr.
std::string captured_log(const std::function<void()>& body);

}  // namespace strata::testing

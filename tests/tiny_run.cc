// SPDX-License-Identifier: Apache-2.0
#include "tests/tiny_run.h"

#include <csignal>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "strata/base/file.h"
#include "strata/base/random.h"
#include "tests/model_harness.h"

namespace strata::testing {

TinyRun::TinyRun() {
  set_dropout(0);
  write_text(words(20));
  config.run.directory = folder_ / "run";
  config.run.threads = 1;
  config.model.config = folder_ / "config.json";
  config.data.train = {folder_ / "train.txt"};
  config.data.validation_fraction = 0;
  config.batch.micro = 2;
  config.optimizer.lr = 1e-2;
  config.train.max_steps = 10;
  config.log.every = 1000;
  config.log.tensorboard = false;
}

void TinyRun::write_text(const std::string& text) { write_test_file(folder_ / "train.txt", text); }

std::string TinyRun::words(int64_t samples) {
  static constexpr std::array kWords = {"the ", "cat ", "sat ",  "on ", "a ",   "mat ",
                                        "and ", "saw ", "that ", "it ", "was ", "warm "};
  std::string text;
  for (uint64_t place = 0; static_cast<int64_t>(text.size()) < 16 * samples; ++place)
    text += kWords[philox(7, place, 0)[0] % kWords.size()];
  return text.substr(0, static_cast<size_t>(16 * samples));  // the end-of-text token is the last target
}

void TinyRun::set_dropout(double probability) {
  const nlohmann::json model = {{"model_type", "gpt2"},
                                {"architectures", {"GPT2LMHeadModel"}},
                                {"vocab_size", 257},
                                {"n_positions", 16},
                                {"n_embd", 32},
                                {"n_layer", 2},
                                {"n_head", 4},
                                {"activation_function", "gelu_new"},
                                {"attn_pdrop", probability},
                                {"resid_pdrop", probability},
                                {"embd_pdrop", probability},
                                {"layer_norm_epsilon", 1e-5},
                                {"initializer_range", 0.02},
                                {"tie_word_embeddings", true},
                                {"bos_token_id", 256},
                                {"eos_token_id", 256}};
  write_test_file(folder_ / "config.json", model.dump());
}

std::filesystem::path TinyRun::checkpoint(int64_t step) const { return checkpoint_path(config.run.directory, step); }

std::vector<int64_t> TinyRun::checkpoints() const {
  std::set<int64_t> steps;
  for (const auto& entry : std::filesystem::directory_iterator(run_folder() / "checkpoints"))
    steps.insert(std::stoll(entry.path().filename().string().substr(5)));
  return {steps.begin(), steps.end()};
}

std::vector<std::string> TinyRun::metrics() const {
  static const std::set<std::string> kept = {"step",      "tokens_seen",   "loss",           "learning_rate",
                                             "grad_norm", "skipped_steps", "validation_loss"};
  std::istringstream lines(read_bytes(run_folder() / "metrics.csv"));
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    rows.emplace_back();
    for (const MetricColumn& column : metric_columns()) {
      std::string cell;
      std::getline(cells, cell, ',');
      if (kept.contains(std::string(column.name))) rows.back() += cell + ' ';
    }
  }
  return rows;
}

std::vector<MetricPoint> TinyRun::column(std::string_view name) const {
  return read_csv_column(run_folder() / "metrics.csv", name);
}

TrainResult train(const TrainConfig& config, int64_t stop_after, int signal) {
  Trainer trainer(config);
  trainer.on_step([&](const StepMetrics& metrics) {
    if (metrics.step == stop_after) std::raise(signal);
  });
  return trainer.train();
}

std::vector<std::vector<float>> parameters(Trainer& trainer) {
  std::vector<std::vector<float>> values;
  const std::vector<LayerDecl>& layers = trainer.workload().layers;
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (size_t index = 0; index < layers[layer].parameters.size(); ++index)
      values.push_back(copy_values(trainer.executor().master(static_cast<int>(layer), static_cast<int>(index))));
  return values;
}

std::string read_bytes(const std::filesystem::path& path) { return read_text_file(path); }

std::string captured_log(const std::function<void()>& body) {
  ::testing::internal::CaptureStderr();
  body();
  return ::testing::internal::GetCapturedStderr();
}

}  // namespace strata::testing

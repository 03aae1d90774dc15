// SPDX-License-Identifier: Apache-2.0
// Trains a model as a config says: data, plan, programs, step loop, evaluation, checkpoints, log, model folder. Every
// rank has a trainer, and all of them call the same functions; the first one keeps the log. train() runs to the end, or
// to the first SIGTERM or SIGINT that reaches any rank, after which the run can be resumed as if it had never stopped.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "strata/base/log.h"
#include "strata/ckpt/checkpoint.h"
#include "strata/train/corpus.h"
#include "strata/train/metrics.h"
#include "strata/train/model_instance.h"
#include "strata/train/ranks.h"
#include "strata/train/run_folder.h"
#include "strata/train/run_log.h"
#include "strata/train/workload.h"

namespace strata {

struct TrainResult {
  int64_t step = 0;
  double loss = 0;  // of the last step
  std::optional<double> validation_loss;
  bool stopped = false;      // by a signal, after saving
  std::string model_folder;  // empty when stopped
};

class SignalRequests;

class Trainer {
 public:
  // Opens the data, compiles, allocates, and loads the newest checkpoint, the given weights, or random ones.
  explicit Trainer(const TrainConfig& config) : Trainer(config, nullptr) {}
  // One of the ranks of `comm`, which may be null (one rank) and must outlive the trainer. Throws Error on all ranks
  // when they differ in config, model, plan, data or executable.
  Trainer(const TrainConfig& config, Comm* comm);
  ~Trainer();

  TrainResult train();

  // For tests and embedding in other programs.
  const Workload& workload() const { return *workload_; }
  Executor& executor() { return instance_->executor(); }
  const Corpus& corpus() const { return corpus_; }
  const TrainerState& state() const { return state_; }
  int64_t max_steps() const { return max_steps_; }
  // Called with every step's metrics besides the log.
  void on_step(std::function<void(const StepMetrics&)> callback) { callback_ = std::move(callback); }
  // One step on the next batch of the run; `train` is a loop over it.
  StepMetrics step();
  // One step on any batch in the executor's storage. A batch without a counted token updates nothing and counts as
  // skipped.
  StepMetrics step_on(const BatchSheet& sheet);
  double evaluate();
  void save();
  // Writes the model folder from the newest checkpoint: the run has saved or resumed.
  std::string write_model();

 private:
  StatesInMemory states() { return {workload_->input, workload_->layers, workload_->programs, instance_->arena()}; }
  void require_equal_ranks();
  void claim_folder();
  void open_data();
  std::optional<CheckpointInfo> find_checkpoint();
  void load_or_initialize();
  void resume(const CheckpointInfo& checkpoint);
  void refuse_old_checkpoints() const;
  void compare_options() const;
  void choose_learning_rate();
  BatchSheet next_batch();
  void set_scalars(const BatchSheet& sheet);
  void run_program(const BatchSheet& sheet);
  void finish_step(StepMetrics& metrics);
  void save_timed();
  void export_checkpoint() const;
  void note_bad_step();
  std::string name_bad_tensor();
  bool due(int64_t every) const { return every > 0 && state_.step % every == 0; }

  Ranks ranks_;
  std::optional<QuietLog> quiet_;  // on all ranks but the first
  std::unique_ptr<Workload> workload_;
  RunFolder folder_;
  Corpus corpus_;
  std::unique_ptr<ModelInstance> instance_;
  TrainerState state_;
  std::string checkpoint_;  // the newest
  int64_t max_steps_ = 0;
  int64_t bad_steps_in_a_row_ = 0;
  double peak_flops_ = 0;
  double seconds_saving_ = 0;  // of the save after the last step
  int64_t num_traced_ = 0;
  std::vector<MicroBatchStorage> storages_;
  std::optional<RunLog> log_;  // on the first rank, while it trains
  std::vector<InstructionTime> times_;
  std::function<void(const StepMetrics&)> callback_;
};

}  // namespace strata

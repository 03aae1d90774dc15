// SPDX-License-Identifier: Apache-2.0
#include "strata/train/trainer.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/error.h"
#include "strata/base/file.h"
#include "strata/data/sampler.h"
#include "strata/device/process_memory.h"
#include "strata/kernels/peak.h"
#include "strata/optim/schedule.h"
#include "strata/train/evaluation.h"
#include "strata/train/flops.h"
#include "strata/train/run_length.h"
#include "strata/train/signals.h"

namespace strata {
namespace {

constexpr int64_t kMostBadStepsInARow = 100;
constexpr int64_t kTracedSteps = 10;

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

RankPosition position_of(Comm* comm) {
  return comm == nullptr ? RankPosition{} : RankPosition{comm->rank(), comm->size(), comm->ranks_on_node()};
}

// Once per process: ranks may be threads.
const std::string& executable_checksum() {
  static const std::string checksum = [] {
    const std::string bytes = read_text_file("/proc/self/exe");
    return checksum_hex(checksum_of(std::as_bytes(std::span(bytes))));
  }();
  return checksum;
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, Comm* comm) : ranks_(comm) {
  if (!ranks_.first()) quiet_.emplace();
  ranks_.together([&] { workload_ = make_workload(config, position_of(comm)); });
  require_equal_ranks();
  claim_folder();
  open_data();
  instance_ = std::make_unique<ModelInstance>(workload_->input, workload_->layers, workload_->programs, comm);
  storages_ = executor().batch_storages(workload_->input.plan.accumulation);
  load_or_initialize();
  ranks_.together([&] {
    max_steps_ = last_step(config.train, corpus_.train->num_samples(), workload_->global_batch(),
                           {state_.step, state_.samples_seen});
    validate_schedule(config.schedule, workload_->config.optimizer.lr, max_steps_);
  });
  if (ranks_.first()) folder_.describe(*workload_);
}

Trainer::~Trainer() = default;

void Trainer::require_equal_ranks() {
  if (ranks_.size() == 1) return;
  ranks_.require_equal("executable", executable_checksum());
  ranks_.require_equal("config", to_toml(workload_->config));
  ranks_.require_equal("model config", to_config_json(workload_->model).dump());
  Plan plan = workload_->input.plan;
  plan.threads = 1;  // machines may differ in cores
  ranks_.require_equal("plan", to_json(plan).dump());
}

void Trainer::claim_folder() {
  const std::string& path = workload_->config.run.directory;
  ranks_.first_then_others([&] { folder_ = ranks_.first() ? RunFolder::claim(path) : RunFolder(path); });
}

// The first rank writes the token files that the others then find.
void Trainer::open_data() {
  const TrainConfig& config = workload_->config;
  ranks_.first_then_others([&] { corpus_ = open_corpus(config, workload_->model, config.run.directory); });
  ranks_.require_equal("data", checksum_hex(corpus_.train->fingerprint()));
}

BatchSheet Trainer::next_batch() {
  const TrainConfig& config = workload_->config;
  const Plan& plan = workload_->input.plan;
  const int64_t dataset_samples = corpus_.train->num_samples();
  const int64_t samples =
      next_batch_samples(config.train, dataset_samples, workload_->global_batch(), {state_.step, state_.samples_seen});
  BatchSheet sheet;
  fill_batch_sheet(*corpus_.train, SampleOrder::shuffled(dataset_samples, config.run.seed),
                   batch_extents(plan, ranks_.rank(), state_.samples_seen, samples, plan.accumulation), storages_,
                   sheet);
  state_.samples_seen += samples;
  return sheet;
}

StepMetrics Trainer::step() {
  const Stopwatch total;
  const BatchSheet sheet = next_batch();
  const double seconds_data = total.seconds();
  StepMetrics metrics = step_on(sheet);
  metrics.seconds_data = seconds_data;
  metrics.seconds_total = total.seconds();
  metrics.tokens_per_second = static_cast<double>(sheet.num_tokens) / metrics.seconds_total;
  metrics.mfu = peak_flops_ > 0
                    ? step_flops(workload_->layers, sheet.sequence_lengths) / (metrics.seconds_total * peak_flops_)
                    : 0.0;
  metrics.memory_bytes =
      static_cast<int64_t>(ranks_.largest(static_cast<double>(read_process_memory().resident_bytes())));
  return metrics;
}

StepMetrics Trainer::step_on(const BatchSheet& sheet) {
  const Stopwatch compute;
  StepMetrics metrics;
  state_.step += 1;
  state_.tokens_seen += sheet.num_tokens;
  set_scalars(sheet);
  const StepScalars& scalars = executor().scalars();
  if (sheet.counted > 0) {
    run_program(sheet);
    metrics.loss = scalars.loss_sum / static_cast<double>(sheet.counted);
    metrics.grad_norm = std::sqrt(scalars.norm_squared);
  } else {
    state_.skipped_steps += 1;
    log_warning("step {}: no counted token in the batch; the step is skipped, {} skipped so far", state_.step,
                state_.skipped_steps);
  }
  metrics.step = state_.step;
  metrics.tokens_seen = state_.tokens_seen;
  metrics.learning_rate = scalars.learning_rate;
  metrics.skipped_steps = state_.skipped_steps;
  metrics.seconds_compute = compute.seconds();
  return metrics;
}

void Trainer::set_scalars(const BatchSheet& sheet) {
  const TrainConfig& config = workload_->config;
  StepScalars& scalars = executor().scalars();
  scalars.seed = config.run.seed;
  scalars.step = state_.step;
  scalars.update_step = state_.update_step + 1;
  scalars.learning_rate = learning_rate(config.schedule, config.optimizer.lr, max_steps_, state_.step);
  scalars.counted = static_cast<double>(sheet.counted);
  scalars.clip_norm = config.optimizer.clip_norm;
  scalars.training = true;
  scalars.finite = true;
}

void Trainer::run_program(const BatchSheet& sheet) {
  executor().run(workload_->step(), sheet);
  if (!executor().scalars().finite) return note_bad_step();
  state_.update_step += 1;
  bad_steps_in_a_row_ = 0;
}

void Trainer::note_bad_step() {
  state_.skipped_steps += 1;
  bad_steps_in_a_row_ += 1;
  log_warning("step {}: the gradient of {} is not finite (loss sum {}); the update is skipped, {} skipped so far",
              state_.step, name_bad_tensor(), executor().scalars().loss_sum, state_.skipped_steps);
  if (bad_steps_in_a_row_ >= kMostBadStepsInARow)
    throw_failed_run(
        "step {}: {} steps in a row had a gradient that is not finite; a lower optimizer.lr or more "
        "schedule.warmup_steps may help. "
        "The last checkpoint is from before or during them",
        state_.step, bad_steps_in_a_row_);
}

// Of the first rank that has one.
std::string Trainer::name_bad_tensor() {
  const int64_t bad = executor().scalars().first_bad_tensor;
  const auto finder = static_cast<int>(ranks_.smallest(bad >= 0 ? ranks_.rank() : ranks_.size()));
  if (finder == ranks_.size()) return "no single tensor";
  return ranks_.from(finder, finder == ranks_.rank() ? executor().tensor_name(static_cast<int>(bad)) : "");
}

double Trainer::evaluate() {
  return strata::evaluate(executor(), workload_->evaluation(), workload_->input.plan, *corpus_.validation,
                          workload_->config.train.eval_samples, ranks_)
      .loss;
}

// The row of a step is in the log before its checkpoint exists, so that no resumed run lacks it; the time of saving
// counts in the next row.
void Trainer::finish_step(StepMetrics& metrics) {
  const TrainConfig& config = workload_->config;
  const bool last = state_.step == max_steps_;
  if (corpus_.validation && (due(config.train.eval_every) || last)) {
    const Stopwatch evaluation;
    metrics.validation_loss = evaluate();
    metrics.seconds_eval = evaluation.seconds();
  }
  metrics.seconds_save = std::exchange(seconds_saving_, 0.0);
  metrics.seconds_total += metrics.seconds_eval + metrics.seconds_save;
  if (log_) log_->write(metrics);
  if (callback_) callback_(metrics);
}

void Trainer::save_timed() {
  const Stopwatch saving;
  save();
  seconds_saving_ = saving.seconds();
}

TrainResult Trainer::train() {
  SignalRequests signals;
  if (ranks_.first()) log_.emplace(*workload_, folder_, state_.step, max_steps_);
  peak_flops_ = ranks_.sum(kernels::measure_peak_flops(instance_->team()));
  log_run(*workload_, corpus_);
  TrainResult result;
  if (state_.step >= max_steps_)
    log_info("nothing is left to train: the run has {} steps and is at step {}", max_steps_, state_.step);
  for (bool stop = false; state_.step < max_steps_ && !stop;) {
    const bool traced = workload_->config.log.profile && num_traced_ < kTracedSteps;
    executor().record_times(traced ? &times_ : nullptr);
    StepMetrics metrics = step();
    executor().record_times(nullptr);
    num_traced_ += traced ? 1 : 0;
    finish_step(metrics);
    stop = ranks_.any(signals.stop_requested());
    const bool save_now = ranks_.any(signals.take_save_request());
    if (save_now || stop || due(workload_->config.train.save_every) || state_.step == max_steps_) save_timed();
    result.loss = metrics.loss;
    if (metrics.validation_loss) result.validation_loss = metrics.validation_loss;
  }
  if (log_) log_->finish();
  log_.reset();
  result.step = state_.step;
  result.stopped = state_.step < max_steps_;
  if (workload_->config.log.profile) write_instruction_trace(folder_, *workload_, times_);
  if (!result.stopped) result.model_folder = write_model();
  return result;
}

}  // namespace strata

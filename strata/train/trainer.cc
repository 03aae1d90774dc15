// SPDX-License-Identifier: Apache-2.0
#include "strata/train/trainer.h"

#include <chrono>
#include <cmath>
#include <utility>

#include "strata/base/error.h"
#include "strata/base/log.h"
#include "strata/base/units.h"
#include "strata/ckpt/checkpoint_parameters.h"
#include "strata/data/sampler.h"
#include "strata/device/process_memory.h"
#include "strata/hf/model_folder.h"
#include "strata/hf/tokenizer_json.h"
#include "strata/kernels/peak.h"
#include "strata/optim/decay_groups.h"
#include "strata/optim/schedule.h"
#include "strata/spec/train_options.h"
#include "strata/store/disk_file.h"
#include "strata/train/console_metrics.h"
#include "strata/train/csv_metrics.h"
#include "strata/train/evaluation.h"
#include "strata/train/flops.h"
#include "strata/train/initialize.h"
#include "strata/train/loss_curve.h"
#include "strata/train/run_length.h"
#include "strata/train/signals.h"
#include "strata/train/tensorboard_metrics.h"
#include "strata/train/trace.h"

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

std::vector<int64_t> sequence_lengths(const BatchSheet& sheet) {
  std::vector<int64_t> lengths;
  for (const MicroBatch& batch : sheet.micro_batches)
    for (int64_t sequence = 0; sequence < batch.num_sequences(); ++sequence)
      lengths.push_back(batch.offsets[sequence + 1] - batch.offsets[sequence]);
  return lengths;
}

}  // namespace

Trainer::Trainer(const TrainConfig& config)
    : workload_(make_workload(config)),
      folder_(RunFolder::claim(config.run.directory)),
      corpus_(open_corpus(config, workload_->model, config.run.directory)),
      instance_(std::make_unique<ModelInstance>(workload_->input, workload_->layers, workload_->programs, nullptr)) {
  for (int64_t index = 0; index < workload_->input.plan.accumulation; ++index)
    storages_.push_back(executor().batch_storage(static_cast<int>(index)));
  load_or_initialize();
  max_steps_ = last_step(config.train, corpus_.train->num_samples(), workload_->global_batch(),
                         {state_.step, state_.samples_seen});
  validate_schedule(config.schedule, workload_->config.optimizer.lr, max_steps_);
  folder_.describe(*workload_);
}

Trainer::~Trainer() = default;

void Trainer::load_or_initialize() {
  const TrainConfig& config = workload_->config;
  std::vector<std::string> warnings;
  std::optional<CheckpointInfo> checkpoint;
  remove_unfinished_checkpoints(config.run.directory);
  if (config.train.resume == ResumeMode::kNever)
    refuse_old_checkpoints();
  else
    checkpoint = find_latest_complete(config.run.directory, warnings);
  for (const std::string& warning : warnings) log_warning("{}", warning);
  if (checkpoint) return resume(*checkpoint);
  if (config.train.resume == ResumeMode::kMust)
    throw_bad_input("train.resume is \"must\" and {} holds no checkpoint: use \"auto\" for a first start",
                    config.run.directory);
  if (config.model.weights == "random") {
    initialize_parameters(states(), config.run.seed, instance_->team());
  } else {
    load_weights(config.model.weights, states());
  }
  state_.data_fingerprint = checksum_hex(corpus_.train->fingerprint());
}

void Trainer::resume(const CheckpointInfo& checkpoint) {
  state_ = read_checkpoint(checkpoint, states());
  checkpoint_ = checkpoint.folder;
  const std::string fingerprint = checksum_hex(corpus_.train->fingerprint());
  if (state_.data_fingerprint != fingerprint)
    throw_bad_input(
        "{} was trained on data with fingerprint {} and this is {}: give the same data, or another run.directory",
        checkpoint.folder, state_.data_fingerprint, fingerprint);
  choose_learning_rate();
  compare_options();
  log_info("resumed from {} at step {}", checkpoint.folder, state_.step);
}

// They would outlive the new run's, and a resume would take the old run up again.
void Trainer::refuse_old_checkpoints() const {
  std::error_code none;
  const std::filesystem::path folder = folder_.checkpoints();
  if (std::filesystem::exists(folder, none) && !std::filesystem::is_empty(folder, none))
    throw_bad_input(
        "train.resume is \"never\" and {} holds checkpoints: choose another run.directory, or move that folder away",
        folder.string());
}

void Trainer::choose_learning_rate() {
  TrainConfig& config = workload_->config;
  if (state_.peak_learning_rate == config.optimizer.lr) return;
  const double used = config.train.resume_lr_from_checkpoint ? state_.peak_learning_rate : config.optimizer.lr;
  log_info("learning rate: checkpoint {}, config {}, using {} (train.resume_lr_from_checkpoint = {})",
           state_.peak_learning_rate, config.optimizer.lr, used, config.train.resume_lr_from_checkpoint);
  config.optimizer.lr = used;
}

// A line for everything else that the config asks for and the run so far did not.
void Trainer::compare_options() const {
  TrainConfig before;
  try {
    before = parse_train_config(state_.config_toml, "the checkpoint's config", {});
  } catch (const Error& error) {
    return log_warning("options are not compared with those of the checkpoint: {}", error.what());
  }
  for (const TrainOption& option : train_config_options())
    if (option.key != "optimizer.lr" && !option.key.starts_with("train.resume") &&
        option.get(before) != option.get(workload_->config))
      log_info("{}: {} so far, {} from here on", option.key, toml_text(option.get(before)),
               toml_text(option.get(workload_->config)));
}

void Trainer::open_log() {
  const TrainConfig& config = workload_->config;
  if (!config.log.metrics_csv.empty()) writers_.push_back(std::make_unique<CsvMetrics>(metrics_csv(), state_.step));
  if (config.log.tensorboard)
    writers_.push_back(std::make_unique<TensorboardMetrics>(folder_.tensorboard(), state_.step));
  writers_.push_back(std::make_unique<ConsoleMetrics>(stdout, ConsoleOptions{max_steps_, config.log.every}));
  peak_flops_ = kernels::measure_peak_flops(instance_->team());
}

void Trainer::log_start() const {
  const DecayGroups groups = decay_groups(workload_->layers, workload_->config.optimizer);
  log_info("model: {} parameters; {} tensors with weight decay {}, {} without",
           format_count(count_parameters(workload_->layers)), groups.decay.size(),
           workload_->config.optimizer.weight_decay, groups.no_decay.size());
  log_info("with decay: {}", fmt::join(groups.decay, " "));
  log_info("without decay: {}", fmt::join(groups.no_decay, " "));
  log_info("data: {} samples of up to {} tokens, fingerprint {}", corpus_.train->num_samples(), corpus_.train->seq(),
           state_.data_fingerprint);
  if (corpus_.validation)
    log_info("validation: {} samples, fingerprint {}", corpus_.validation->num_samples(),
             checksum_hex(corpus_.validation->fingerprint()));
  log_info("memory: arena {}, threads {}", format_bytes(workload_->programs.arena_bytes[0]),
           workload_->input.plan.threads);
  if (workload_->input.plan.threads > available_threads())
    log_warning("{} threads on {} cores this process may use: expect a slow run", workload_->input.plan.threads,
                available_threads());
}

BatchSheet Trainer::next_batch() {
  const TrainConfig& config = workload_->config;
  const Plan& plan = workload_->input.plan;
  const int64_t dataset_samples = corpus_.train->num_samples();
  const int64_t samples =
      next_batch_samples(config.train, dataset_samples, workload_->global_batch(), {state_.step, state_.samples_seen});
  BatchSheet sheet;
  fill_batch_sheet(*corpus_.train, SampleOrder::shuffled(dataset_samples, config.run.seed),
                   {state_.samples_seen, samples, plan.micro_batch, plan.accumulation}, storages_, sheet);
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
                    ? step_flops(workload_->model, sequence_lengths(sheet)) / (metrics.seconds_total * peak_flops_)
                    : 0.0;
  metrics.memory_bytes = read_process_memory().resident_bytes();
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
  const int64_t bad = executor().scalars().first_bad_tensor;
  log_warning("step {}: the gradient of {} is not finite (loss sum {}); the update is skipped, {} skipped so far",
              state_.step, bad >= 0 ? executor().tensor_name(static_cast<int>(bad)) : "no single tensor",
              executor().scalars().loss_sum, state_.skipped_steps);
  if (bad_steps_in_a_row_ >= kMostBadStepsInARow)
    throw_failed_run(
        "step {}: {} steps in a row had a gradient that is not finite; a lower optimizer.lr or more "
        "schedule.warmup_steps may help. "
        "The last checkpoint is from before or during them",
        state_.step, bad_steps_in_a_row_);
}

double Trainer::evaluate() {
  return strata::evaluate(executor(), workload_->evaluation(), workload_->input.plan, *corpus_.validation,
                          workload_->config.train.eval_samples, ranks_)
      .loss;
}

void Trainer::save() {
  const TrainConfig& config = workload_->config;
  state_.peak_learning_rate = config.optimizer.lr;
  state_.tokenizer = corpus_.tokenizer ? corpus_.tokenizer->name() : "none";
  state_.config_toml = to_toml(config);
  write_checkpoint(config.run.directory, state_, states(), [&](DiskFile& file) {
    executor().run(workload_->save(), {},
                   [&](int64_t offset, std::span<const std::byte> bytes) { file.write(offset, bytes); });
  });
  checkpoint_ = checkpoint_path(config.run.directory, state_.step);
  remove_old_checkpoints(config.run.directory, state_.step, config.train.keep_last);
}

std::string Trainer::write_model() {
  STRATA_CHECK(!checkpoint_.empty(), "there is no checkpoint to write a model from");
  const CheckpointInfo checkpoint = open_known_checkpoint(checkpoint_);
  CheckpointParameters parameters(checkpoint);
  const std::vector<LayerDecl>& layers = workload_->layers;
  ModelFolder contents{workload_->model,
                       layers,
                       [&](int layer, int index) { return parameters.read(layers[layer].parameters[index]); },
                       DType::kF32,
                       {}};
  if (corpus_.tokenizer)
    contents.add_files = [&](const std::filesystem::path& folder) {
      write_bytes_tokenizer(folder, workload_->model.max_positions);
    };
  write_model_folder(folder_.model(), contents, ExistingTarget::kReplace);
  return folder_.model().string();
}

void Trainer::write_trace_file() const {
  std::vector<TraceRecord> records;
  for (const InstructionTime& time : times_) {
    const Instruction& instruction = *time.instruction;
    TraceRecord record;
    record.category = op_name(instruction.op);
    record.queue = queue_name(instruction.queue);
    record.name = instruction_name(instruction, workload_->layers);
    record.start_us = time.start_us;
    record.duration_us = time.duration_us;
    if (instruction.micro_batch >= 0) record.args.push_back({"micro_batch", instruction.micro_batch});
    records.push_back(std::move(record));
  }
  write_trace(folder_.trace(), 0, records);
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
  for (const std::unique_ptr<MetricsWriter>& writer : writers_) writer->write(metrics);
  if (callback_) callback_(metrics);
}

void Trainer::save_timed() {
  const Stopwatch saving;
  save();
  seconds_saving_ = saving.seconds();
}

TrainResult Trainer::train() {
  SignalRequests signals;
  open_log();
  log_start();
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
    stop = signals.stop_requested();
    if (signals.take_save_request() || stop || due(workload_->config.train.save_every) || state_.step == max_steps_)
      save_timed();
    result.loss = metrics.loss;
    if (metrics.validation_loss) result.validation_loss = metrics.validation_loss;
  }
  writers_.clear();
  result.step = state_.step;
  result.stopped = state_.step < max_steps_;
  if (workload_->config.log.profile) write_trace_file();
  if (!workload_->config.log.metrics_csv.empty())
    write_loss_curve(folder_.loss_curve(), folder_.path().string(), metrics_csv());
  if (!result.stopped) result.model_folder = write_model();
  return result;
}

}  // namespace strata

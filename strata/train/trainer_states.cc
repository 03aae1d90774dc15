// SPDX-License-Identifier: Apache-2.0
// What a trainer starts from and leaves behind: initial weights, checkpoints, the model folder.
#include "strata/base/error.h"
#include "strata/base/log.h"
#include "strata/ckpt/checkpoint_parameters.h"
#include "strata/hf/model_folder.h"
#include "strata/hf/tokenizer_json.h"
#include "strata/spec/train_options.h"
#include "strata/train/initialize.h"
#include "strata/train/trainer.h"

namespace strata {

// The first rank looks and reads what it finds whole; the others then know that it is right.
std::optional<CheckpointInfo> Trainer::find_checkpoint() {
  const std::string& run = workload_->config.run.directory;
  std::optional<CheckpointInfo> checkpoint;
  if (ranks_.first()) {
    remove_unfinished_checkpoints(run);
    if (workload_->config.train.resume == ResumeMode::kNever) {
      refuse_old_checkpoints();
    } else {
      std::vector<std::string> warnings;
      checkpoint = find_latest_complete(run, warnings);
      for (const std::string& warning : warnings) log_warning("{}", warning);
    }
  }
  const std::string folder = ranks_.from(0, checkpoint ? checkpoint->folder : "");
  if (!ranks_.first() && !folder.empty()) checkpoint = open_known_checkpoint(folder);
  return checkpoint;
}

void Trainer::load_or_initialize() {
  const TrainConfig& config = workload_->config;
  const std::optional<CheckpointInfo> checkpoint = find_checkpoint();
  if (checkpoint) return resume(*checkpoint);
  if (config.train.resume == ResumeMode::kMust)
    ranks_.refuse(fmt::format("train.resume is \"must\" and {} holds no checkpoint: use \"auto\" for a first start",
                              config.run.directory));
  if (config.model.weights == "random") {
    initialize_parameters(states(), config.run.seed, instance_->team());
  } else {
    ranks_.together([&] { load_weights(config.model.weights, states()); });
  }
  state_.data_fingerprint = checksum_hex(corpus_.train->fingerprint());
}

void Trainer::resume(const CheckpointInfo& checkpoint) {
  ranks_.together([&] { state_ = read_checkpoint(checkpoint, states()); });
  checkpoint_ = checkpoint.folder;
  const std::string fingerprint = checksum_hex(corpus_.train->fingerprint());
  if (state_.data_fingerprint != fingerprint)
    ranks_.refuse(fmt::format(
        "{} was trained on data with fingerprint {} and this is {}: give the same data, or another run.directory",
        checkpoint.folder, state_.data_fingerprint, fingerprint));
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

void Trainer::save() {
  const TrainConfig& config = workload_->config;
  state_.peak_learning_rate = config.optimizer.lr;
  state_.tokenizer = corpus_.tokenizer ? corpus_.tokenizer->name() : "none";
  state_.config_toml = to_toml(config);
  std::optional<NewCheckpoint> checkpoint;
  if (ranks_.first()) checkpoint.emplace(config.run.directory, state_, states());
  ranks_.barrier();
  write_rank_part(config.run.directory, state_.step, states(), [&](DiskFile& file) {
    executor().run(workload_->save(), {},
                   [&](int64_t offset, std::span<const std::byte> bytes) { file.write(offset, bytes); });
  });
  ranks_.barrier();
  if (checkpoint) {
    checkpoint->commit();
    remove_old_checkpoints(config.run.directory, state_.step, config.train.keep_last);
  }
  ranks_.barrier();
  checkpoint_ = checkpoint_path(config.run.directory, state_.step);
}

std::string Trainer::write_model() {
  STRATA_CHECK(!checkpoint_.empty(), "there is no checkpoint to write a model from");
  if (ranks_.first()) export_checkpoint();
  ranks_.barrier();
  return folder_.model().string();
}

void Trainer::export_checkpoint() const {
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
}

}  // namespace strata

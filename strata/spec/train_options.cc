// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/train_options.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "strata/base/error.h"

namespace strata {
namespace {

constexpr OptionRange kCount{.min = 0, .max = 9e18};
constexpr OptionRange kPositiveCount{.min = 1, .max = 9e18};
constexpr OptionRange kDegree{.min = 1, .max = 1 << 15};
constexpr OptionRange kZeroStages{.min = 0, .max = 3};
constexpr OptionRange kSampleCount{.min = 0, .max = 1 << 24};  // products of two, times the ranks, fit 63 bits
constexpr OptionRange kTokenCount{.min = 0, .max = std::numeric_limits<int32_t>::max()};
constexpr OptionRange kFraction{.min = 0, .max = 1, .below_max = true};
constexpr OptionRange kAboveZero{.min = 0, .above_min = true};

template <typename Member>
OptionType type_of(const OptionDetails& details) {
  if (!details.choices.empty()) return OptionType::kChoice;
  if constexpr (std::is_same_v<Member, bool>) return OptionType::kBoolean;
  if constexpr (std::is_integral_v<Member>) return details.bytes ? OptionType::kBytes : OptionType::kInteger;
  if constexpr (std::is_floating_point_v<Member>) return OptionType::kReal;
  if constexpr (std::is_same_v<Member, std::string>) return OptionType::kText;
  return OptionType::kTextList;
}

template <typename Member>
OptionValue to_value(const Member& member, const std::vector<std::string>& choices) {
  if constexpr (std::is_enum_v<Member>)
    return choices[static_cast<size_t>(member)];
  else if constexpr (std::is_integral_v<Member> && !std::is_same_v<Member, bool>)
    return static_cast<int64_t>(member);
  else
    return member;
}

template <typename Member>
void from_value(const OptionValue& value, const std::vector<std::string>& choices, Member& member) {
  if constexpr (std::is_enum_v<Member>) {
    const auto found = std::find(choices.begin(), choices.end(), std::get<std::string>(value));
    member = static_cast<Member>(found - choices.begin());
  } else if constexpr (std::is_integral_v<Member> && !std::is_same_v<Member, bool>) {
    member = static_cast<Member>(std::get<int64_t>(value));
  } else {
    member = std::get<Member>(value);
  }
}

template <typename Part>
class Section {
 public:
  Section(std::vector<TrainOption>& table, std::string name, Part TrainConfig::*part)
      : table_(table), name_(std::move(name)), part_(part) {}

  template <typename Member>
  void add(const std::string& name, Member Part::*member, const std::string& help, const OptionDetails& details = {}) {
    const auto part = part_;
    const auto choices = details.choices;
    table_.push_back(
        {name_ + "." + name, type_of<Member>(details), help, details,
         [=](const TrainConfig& config) { return to_value(config.*part.*member, choices); },
         [=](TrainConfig& config, const OptionValue& value) { from_value(value, choices, config.*part.*member); }});
  }

 private:
  std::vector<TrainOption>& table_;
  std::string name_;
  Part TrainConfig::*part_;
};

void add_run(std::vector<TrainOption>& table) {
  Section run(table, "run", &TrainConfig::run);
  run.add("directory", &RunConfig::directory,
          "folder of checkpoints, metrics and the plan; relative to the current folder",
          {.other_names = {"output_dir", "out_dir", "save_dir", "save_path"}, .required = true});
  run.add("seed", &RunConfig::seed, "key of all randomness: initial weights, order of the samples, dropout",
          {.range = kCount});
  run.add("threads", &RunConfig::threads, "compute threads; 0: all cores this process may use",
          {.range = {.max = 4096}, .other_names = {"num_threads", "num_workers"}});
}

void add_model(std::vector<TrainOption>& table) {
  Section model(table, "model", &TrainConfig::model);
  model.add("config", &ModelConfig::config, "a config.json, or a Hugging Face folder that holds one",
            {.other_names = {"name", "model_name_or_path", "config_name", "path"}, .required = true});
  model.add("weights", &ModelConfig::weights, "\"random\" for fresh weights, or a folder with model.safetensors",
            {.other_names = {"init_from", "checkpoint"}, .required = true});
  model.add("precision", &ModelConfig::precision,
            "storage of weights and activations; sums and master weights are always fp32",
            {.choices = {"f32", "bf16"}, .other_names = {"dtype", "torch_dtype", "mixed_precision"}});
  model.add("frozen", &ModelConfig::frozen,
            "patterns (* and ?) of the tensors that are not trained: no gradient, no optimizer state",
            {.other_names = {"freeze", "freeze_layers", "frozen_layers", "requires_grad"}});
}

void add_data(std::vector<TrainOption>& table) {
  Section data(table, "data", &TrainConfig::data);
  data.add("train", &DataConfig::train,
           "training files: text, JSONL, llm.c .bin or Strata token files; globs are expanded",
           {.other_names = {"train_file", "train_files", "dataset", "path"}, .required = true});
  data.add("validation", &DataConfig::validation, "validation files; empty: documents are split off from data.train",
           {.other_names = {"validation_file", "valid", "val", "eval", "test"}});
  data.add(
      "validation_fraction", &DataConfig::validation_fraction,
      "part of the training documents kept for validation; 0: none",
      {.range = kFraction, .other_names = {"val_split", "validation_split"}, .only_with = {"data.validation", {""}}});
  data.add("tokenizer", &DataConfig::tokenizer, "\"bytes\": one token per byte; not used for files of token ids",
           {.other_names = {"tokenizer_name"}, .required = true});
  data.add("sampling", &DataConfig::sampling,
           "window: samples are windows of the token stream; document: one document per sample",
           {.choices = {"window", "document"}});
  data.add("seq", &DataConfig::seq, "tokens per sample; 0: the model's maximum",
           {.range = kTokenCount,
            .other_names = {"max_seq_length", "max_length", "seq_length", "seq_len", "sequence_length", "block_size",
                            "context_length"}});
  data.add("cache", &DataConfig::cache, "folder of tokenised files; empty: tokens inside run.directory",
           {.other_names = {"cache_dir"}});
}

void add_batch(std::vector<TrainOption>& table) {
  Section batch(table, "batch", &TrainConfig::batch);
  batch.add("global", &BatchConfig::global,
            "samples per step over all ranks = micro x accumulation x data-parallel ranks; 0: not given",
            {.range = kSampleCount, .other_names = {"batch_size", "global_batch_size", "train_batch_size", "size"}});
  batch.add("micro", &BatchConfig::micro, "samples per micro-batch and data-parallel rank; 0: not given",
            {.range = kSampleCount,
             .other_names = {"micro_batch_size", "per_device_train_batch_size", "train_micro_batch_size_per_gpu",
                             "micro_batch"}});
  batch.add("accumulation", &BatchConfig::accumulation, "micro-batches per step; 0: not given",
            {.range = kSampleCount,
             .other_names = {"gradient_accumulation_steps", "grad_accum", "gradient_accumulation", "steps"}});
}

void add_optimizer(std::vector<TrainOption>& table) {
  Section optimizer(table, "optimizer", &TrainConfig::optimizer);
  const OptionCondition adamw{"optimizer.kind", {"adamw"}};
  optimizer.add("kind", &OptimizerConfig::kind, "AdamW with decoupled decay, or SGD",
                {.choices = {"adamw", "sgd"}, .other_names = {"type", "name", "optim", "optimizer"}});
  optimizer.add("lr", &OptimizerConfig::lr, "peak learning rate",
                {.range = kAboveZero, .other_names = {"learning_rate", "max_lr"}});
  optimizer.add("beta1", &OptimizerConfig::beta1, "decay of the mean of the gradients",
                {.range = kFraction, .other_names = {"adam_beta1", "betas"}, .only_with = adamw});
  optimizer.add("beta2", &OptimizerConfig::beta2, "decay of the mean of the squared gradients",
                {.range = kFraction, .other_names = {"adam_beta2"}, .only_with = adamw});
  optimizer.add("eps", &OptimizerConfig::eps, "added to the root of the mean square",
                {.range = kAboveZero, .other_names = {"adam_epsilon", "epsilon"}, .only_with = adamw});
  optimizer.add("momentum", &OptimizerConfig::momentum, "decay of the sum of the gradients; 0: no momentum",
                {.range = kFraction, .only_with = {"optimizer.kind", {"sgd"}}});
  optimizer.add("weight_decay", &OptimizerConfig::weight_decay, "weights shrink by lr x weight_decay per step",
                {.other_names = {"wd"}});
  optimizer.add("clip_norm", &OptimizerConfig::clip_norm,
                "largest norm of the gradient, larger ones are scaled down; 0: no clipping",
                {.other_names = {"max_grad_norm", "grad_clip", "gradient_clipping", "clip_grad", "clip_grad_norm"}});
  optimizer.add("decay", &OptimizerConfig::decay,
                "patterns (* and ?) of the tensors with weight decay; empty: matrices only");
  optimizer.add("no_decay", &OptimizerConfig::no_decay,
                "patterns of tensors without weight decay; stronger than optimizer.decay");
}

void add_schedule(std::vector<TrainOption>& table) {
  Section schedule(table, "schedule", &TrainConfig::schedule);
  const OptionCondition decaying{"schedule.kind", {"linear", "cosine", "wsd"}};
  schedule.add("kind", &ScheduleConfig::kind,
               "learning rate after the warm-up; wsd: constant, then a linear decay at the end",
               {.choices = {"constant", "linear", "cosine", "wsd"},
                .other_names = {"type", "name", "lr_scheduler_type", "lr_scheduler"}});
  schedule.add("warmup_steps", &ScheduleConfig::warmup_steps, "steps of linear increase to optimizer.lr",
               {.range = kCount, .other_names = {"warmup", "num_warmup_steps", "warmup_iters", "lr_warmup_steps"}});
  schedule.add("decay_steps", &ScheduleConfig::decay_steps,
               "length of the decay; 0: to the last step (wsd needs a length)",
               {.range = kCount, .other_names = {"lr_decay_iters", "decay_iters"}, .only_with = decaying});
  schedule.add("min_lr", &ScheduleConfig::min_lr, "learning rate at the end of the decay, at most optimizer.lr",
               {.other_names = {"lr_min", "final_lr", "end_lr"}, .only_with = decaying});
}

void add_train(std::vector<TrainOption>& table) {
  Section train(table, "train", &TrainConfig::train);
  train.add("max_steps", &TrainLoopConfig::max_steps, "steps of the whole run; give this or train.epochs",
            {.range = kCount, .other_names = {"steps", "num_steps", "max_iters", "train_steps", "total_steps"}});
  train.add("epochs", &TrainLoopConfig::epochs, "passes over the training samples; give this or train.max_steps",
            {.other_names = {"num_train_epochs", "num_epochs", "max_epochs"}});
  train.add("eval_every", &TrainLoopConfig::eval_every, "steps between evaluations; 0: only at the end",
            {.range = kCount, .other_names = {"eval_steps", "eval_interval"}});
  train.add("eval_samples", &TrainLoopConfig::eval_samples, "samples of an evaluation; 0: the whole validation set",
            {.range = kCount, .other_names = {"eval_iters", "max_eval_samples"}});
  train.add("save_every", &TrainLoopConfig::save_every, "steps between checkpoints; 0: only at the end",
            {.range = kCount, .other_names = {"save_steps", "save_interval", "checkpoint_every"}});
  train.add("keep_last", &TrainLoopConfig::keep_last, "checkpoints that are kept",
            {.range = kPositiveCount, .other_names = {"save_total_limit"}});
  train.add("resume", &TrainLoopConfig::resume,
            "auto: from the newest checkpoint if there is one; never: from the start, refused where there are "
            "checkpoints; must: refuse without one",
            {.choices = {"auto", "never", "must"}, .other_names = {"resume_from_checkpoint"}});
  train.add("resume_lr_from_checkpoint", &TrainLoopConfig::resume_lr_from_checkpoint,
            "which learning rate counts when optimizer.lr was changed: false the config's, true the checkpoint's",
            {.only_with = {"train.resume", {"auto", "must"}}});
}

void add_placement(std::vector<TrainOption>& table) {
  Section parallel(table, "parallel", &TrainConfig::parallel);
  parallel.add("plan", &ParallelConfig::plan, "\"auto\": every layer alike, by the options below; or a plan.json",
               {.required = true});
  parallel.add("activations", &ParallelConfig::activations,
               "what is kept for the backward pass: all, the costly ones, layer inputs, or parts of them (tp)",
               {.choices = {"keep", "selective", "full", "partitioned"},
                .other_names = {"gradient_checkpointing", "activation_checkpointing", "recompute"},
                .only_with = {"parallel.plan", {"auto"}}});
  const OptionCondition automatic{"parallel.plan", {"auto"}};
  parallel.add(
      "tp", &ParallelConfig::tp, "ranks that share every layer (tensor parallel)",
      {.range = kDegree, .other_names = {"tensor_parallel", "tensor_model_parallel_size"}, .only_with = automatic});
  parallel.add("sequence_parallel", &ParallelConfig::sequence_parallel,
               "tensor-parallel ranks hold parts of what lies between layers", {.only_with = automatic});
  parallel.add(
      "cp", &ParallelConfig::cp, "ranks that share the tokens of every sequence (context parallel)",
      {.range = kDegree, .other_names = {"context_parallel", "context_parallel_size"}, .only_with = automatic});
  parallel.add("context", &ParallelConfig::context,
               "how attention reaches their tokens: keys and values go around a ring, or each gets some heads of all",
               {.choices = {"ring", "heads"}, .other_names = {"cp_comm_type"}, .only_with = automatic});
  parallel.add(
      "pp", &ParallelConfig::pp, "pipeline stages; the ranks that tp x cp x pp leaves are data-parallel",
      {.range = kDegree, .other_names = {"pipeline_parallel", "pipeline_model_parallel_size"}, .only_with = automatic});
  parallel.add("zero", &ParallelConfig::zero,
               "what data-parallel ranks shard: 0 nothing, 1 optimizer states, 2 and gradients, 3 and parameters",
               {.range = kZeroStages, .other_names = {"zero_stage", "stage"}, .only_with = automatic});
  parallel.add("overlap", &ParallelConfig::overlap,
               "communication runs beside the computation, on threads of its own; otherwise between",
               {.only_with = automatic});
  Section memory(table, "memory", &TrainConfig::memory);
  memory.add("device", &MemoryConfig::device, "memory that a rank may plan with; 0: what the machine has free",
             {.range = kCount, .other_names = {"limit", "budget", "max_memory"}, .bytes = true});
}

void add_log(std::vector<TrainOption>& table) {
  Section log(table, "log", &TrainConfig::log);
  log.add("every", &LogConfig::every, "steps per line",
          {.range = kPositiveCount, .other_names = {"logging_steps", "log_interval", "log_every"}});
  log.add("profile", &LogConfig::profile, "write a Chrome trace of the measured instructions");
  log.add("metrics_csv", &LogConfig::metrics_csv, "name of the metrics file inside run.directory; empty: none");
  log.add("tensorboard", &LogConfig::tensorboard, "write TensorBoard events inside run.directory");
}

}  // namespace

const std::vector<TrainOption>& train_config_options() {
  static const std::vector<TrainOption> options = [] {
    std::vector<TrainOption> table;
    for (const auto add :
         {add_run, add_model, add_data, add_batch, add_optimizer, add_schedule, add_train, add_placement, add_log}) {
      add(table);
    }
    return table;
  }();
  return options;
}

}  // namespace strata

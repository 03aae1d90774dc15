// SPDX-License-Identifier: Apache-2.0
// Everything that changes the result of a run (maths), plus where things are. Never mentions chunks, buckets or ranks:
// placement is the Plan. Plain data; read from TOML with dotted overrides. Every option is declared once, in the table
// of train_options.h (key, range, choices, help), which drives parsing, the messages, the help text and docs/config.md.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace strata {

enum class Sampling { kWindow, kDocument };
enum class OptimizerKind { kAdamW, kSgd };
enum class ScheduleKind { kConstant, kLinear, kCosine, kWsd };
enum class Precision { kF32, kBF16 };
enum class ResumeMode { kAuto, kNever, kMust };

struct RunConfig {
  std::string directory = "runs/train";
  uint64_t seed = 1;
  int64_t threads = 0;  // 0: all cores this process may use
  bool operator==(const RunConfig&) const = default;
};

struct ModelConfig {
  std::string config;              // a config.json, or a Hugging Face folder
  std::string weights = "random";  // "random" is explicit; a folder with model.safetensors loads it
  Precision precision = Precision::kF32;
  std::vector<std::string> frozen;  // glob patterns on tensor names that are not trained
  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::vector<std::string> train;       // text, JSONL, llm.c .bin or Strata token files; globs
  std::vector<std::string> validation;  // empty: split off from train
  double validation_fraction = 0.01;    // of the train documents, when validation is empty
  std::string tokenizer = "bytes";
  Sampling sampling = Sampling::kWindow;  // windows of the token stream, or one document per sample
  int64_t seq = 0;                        // tokens per sample, at most max_positions
  std::string cache;                      // token files; empty: <run.directory>/tokens
  bool operator==(const DataConfig&) const = default;
};

struct BatchConfig {  // two of three give the third; 0 = not given
  int64_t global = 0;
  int64_t micro = 0;
  int64_t accumulation = 0;
  bool operator==(const BatchConfig&) const = default;
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double momentum = 0.0;  // SGD
  double weight_decay = 0.1;
  double clip_norm = 1.0;             // 0: no clipping
  std::vector<std::string> decay;     // glob patterns on tensor names that get decay; empty: matrices only
  std::vector<std::string> no_decay;  // patterns that never get it; win over `decay`
  bool operator==(const OptimizerConfig&) const = default;
};

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;  // WSD: length of the final decay; others: 0 = to the last step
  double min_lr = 0.0;
  bool operator==(const ScheduleConfig&) const = default;
};

struct TrainLoopConfig {
  int64_t max_steps = 0;     // 0: from epochs
  double epochs = 0;         // 0: from max_steps
  int64_t eval_every = 0;    // steps; 0: only at the end
  int64_t eval_samples = 0;  // 0: the whole validation set
  int64_t save_every = 0;    // steps; 0: only at the end
  int64_t keep_last = 2;     // checkpoints
  ResumeMode resume = ResumeMode::kAuto;
  bool resume_lr_from_checkpoint = false;  // whether it wins over a changed optimizer.lr
  bool operator==(const TrainLoopConfig&) const = default;
};

struct ParallelConfig {
  std::string plan = "auto";  // "auto" or a plan.json
  // Of every layer, only with plan = "auto":
  std::string activations = "keep";  // keep, selective, full, partitioned
  int64_t tp = 1;                    // tensor-parallel ranks
  bool overlap = true;               // communication beside the computation
  bool sequence_parallel = false;    // tensor-parallel ranks share out what lies between layers
  int64_t cp = 1;                    // context-parallel ranks
  std::string context = "ring";      // ring, heads: what of attention they exchange
  int64_t pp = 1;                    // pipeline stages; all other ranks are data-parallel
  int64_t zero = 1;                  // 0 to 3: what data-parallel ranks shard
  bool operator==(const ParallelConfig&) const = default;
};

struct MemoryConfig {
  int64_t device = 0;  // bytes; 0: what the machine has free
  bool operator==(const MemoryConfig&) const = default;
};

struct LogConfig {
  int64_t every = 1;     // steps per line
  bool profile = false;  // Chrome trace of measured instructions
  std::string metrics_csv = "metrics.csv";
  bool tensorboard = true;
  bool operator==(const LogConfig&) const = default;
};

struct TrainConfig {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  TrainLoopConfig train;
  ParallelConfig parallel;
  MemoryConfig memory;
  LogConfig log;
  bool operator==(const TrainConfig&) const = default;
};

// Reads `toml_path` and applies overrides such as {"optimizer.lr", "3e-4"} (lists: "a.txt,b.txt"; the last one wins).
// Throws Error for an unknown key ("did you mean optimizer.lr?"), a wrong type, a value out of range, a missing or
// contradicting option, an option without effect (momentum with AdamW). Relative paths in the file are relative to the
// current folder.
TrainConfig read_train_config(const std::string& toml_path,
                              const std::vector<std::pair<std::string, std::string>>& overrides);
TrainConfig parse_train_config(const std::string& toml_text, const std::string& where,
                               const std::vector<std::pair<std::string, std::string>>& overrides);
// Every key with its value; parsing it back gives the same config.
std::string to_toml(const TrainConfig& config);

// The options for a terminal, and as docs/config.md.
std::string options_text();
std::string options_markdown();

struct BatchSizes {
  int64_t global = 0;
  int64_t micro = 0;
  int64_t accumulation = 0;
  bool operator==(const BatchSizes&) const = default;
};
// global = micro * accumulation * data_ranks. Two given determine the third; with global or micro alone the
// accumulation is 1. Throws Error with the equation and its numbers when they contradict or do not divide, or when
// neither is given.
BatchSizes resolve_batch(const BatchConfig& given, int64_t data_ranks);

}  // namespace strata

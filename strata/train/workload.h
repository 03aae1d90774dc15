// SPDX-License-Identifier: Apache-2.0
// A config resolved into everything that can be known without running: model, batch, plan, programs, and what they
// need. `strata check`, `strata program` and training share it, so they refuse the same things. Pure but for reading
// the model's config.json and the plan.
#pragma once

#include <memory>

#include "strata/program/compile.h"

namespace strata {

// Which rank of how many this is, and how many of them share its machine. size 0: as many as the plan has.
struct RankPosition {
  int rank = 0;
  int64_t size = 1;
  int on_node = 1;
};

struct Workload {
  TrainConfig config;
  ModelSpec model;
  std::vector<LayerDecl> layers;
  CompileInput input;  // plan, precision, sequence length
  ProgramSet programs;

  const Program& step() const { return *programs.find("step"); }
  const Program& evaluation() const { return *programs.find("evaluation"); }
  const Program& save() const { return *programs.find("save"); }
  int64_t data_ranks() const { return input.plan.layers.front().dp; }
  int64_t global_batch() const { return input.plan.micro_batch * input.plan.accumulation * data_ranks(); }
};

// Reads the model and the plan, compiles for one rank, and refuses what does not fit: sequence longer than the model's
// positions, batch sizes that contradict, a plan for another number of ranks, memory beyond the budget (by how many
// bytes and what would help).
std::unique_ptr<Workload> make_workload(const TrainConfig& config, const RankPosition& position);

// The config.json named by model.config: itself, or the one in a folder.
std::string model_config_path(const TrainConfig& config);

// Threads a rank computes with: run.threads, or all cores this process may use.
int available_threads();

// Device memory that the config allows a rank, in bytes: memory.device, or its share of what the machine has free.
int64_t device_budget_bytes(const TrainConfig& config, int ranks_on_node);

// What the run will write, in bytes.
struct DiskNeed {
  int64_t checkpoints = 0;  // keep_last and the one being written
  int64_t model_folder = 0;
};
DiskNeed disk_need(const Workload& workload);

}  // namespace strata

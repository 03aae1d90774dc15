// SPDX-License-Identifier: Apache-2.0
#include "strata/train/workload.h"

#include <sched.h>

#include <filesystem>

#include "strata/base/error.h"
#include "strata/base/units.h"
#include "strata/device/arena.h"
#include "strata/layers/freeze.h"
#include "strata/model/segment.h"
#include "strata/optim/decay_groups.h"
#include "strata/optim/schedule.h"
#include "strata/program/memory.h"

namespace strata {
namespace {

ActivationPolicy parse_policy(const std::string& name) {
  if (name == "selective") return ActivationPolicy::kSelective;
  if (name == "partitioned") return ActivationPolicy::kPartitioned;
  return name == "full" ? ActivationPolicy::kFull : ActivationPolicy::kKeep;
}

int64_t sequence_length(const TrainConfig& config, const ModelSpec& model) {
  const int64_t seq = config.data.seq == 0 ? model.max_positions : config.data.seq;
  if (seq > model.max_positions)
    throw_bad_input("data.seq is {} and the model has {} positions: use data.seq <= {}", seq, model.max_positions,
                    model.max_positions);
  return seq;
}

// Every layer alike, layers dealt out to the stages as evenly as they divide.
Plan uniform_plan(const TrainConfig& config, const ModelSpec& model, int64_t num_ranks, int64_t threads) {
  const ParallelConfig& parallel = config.parallel;
  const int64_t model_ranks = parallel.tp * parallel.cp * parallel.pp;
  if (num_ranks % model_ranks != 0)
    throw_bad_input(
        "{} ranks are no multiple of parallel.tp {} x parallel.cp {} x parallel.pp {} = {}: start a multiple of {}",
        num_ranks, parallel.tp, parallel.cp, parallel.pp, model_ranks, model_ranks);
  const int64_t dp = num_ranks / model_ranks;
  const BatchSizes batch = resolve_batch(config.batch, dp);
  Plan plan = single_rank_plan(model, parse_policy(parallel.activations), batch.micro, batch.accumulation, threads);
  plan.num_ranks = num_ranks;
  plan.sequence_parallel = parallel.sequence_parallel;
  plan.overlap = parallel.overlap;
  const int64_t layers = num_layers(model);
  if (parallel.pp > layers)
    throw_bad_input("parallel.pp is {} and the model has {} layers: use parallel.pp <= {}", parallel.pp, layers,
                    layers);
  plan.stage_layers.clear();
  for (int64_t stage = 0; stage < parallel.pp; ++stage)
    plan.stage_layers.push_back(layers * (stage + 1) / parallel.pp - layers * stage / parallel.pp);
  for (LayerPlan& layer : plan.layers) {
    layer.tp = parallel.tp;
    layer.cp = parallel.cp;
    layer.context = parallel.context == "heads" ? ContextExchange::kHeads : ContextExchange::kRing;
    layer.dp = dp;
    layer.zero = static_cast<int>(parallel.zero);
  }
  return plan;
}

void refuse_other_size(const Plan& plan, const std::string& path, int64_t size) {
  if (size != 0 && plan.num_ranks != size)
    throw_bad_input("the plan {} has {} ranks and {} run: start it with --ranks {}, or use a plan with num_ranks {}",
                    path, plan.num_ranks, size, plan.num_ranks, size);
}

Plan make_plan(const TrainConfig& config, const ModelSpec& model, const RankPosition& position) {
  const int threads = config.run.threads == 0 ? std::max(available_threads() / position.on_node, 1)
                                              : static_cast<int>(config.run.threads);
  if (config.parallel.plan == "auto") {
    const int64_t num_ranks =
        position.size == 0 ? config.parallel.tp * config.parallel.cp * config.parallel.pp : position.size;
    const Plan plan = uniform_plan(config, model, num_ranks, threads);
    validate_plan(plan, model);
    return plan;
  }
  const Plan plan = read_plan(config.parallel.plan);
  validate_plan(plan, model);
  refuse_other_size(plan, config.parallel.plan, position.size);
  const BatchConfig& batch = config.batch;
  const int64_t planned = plan.micro_batch * plan.accumulation * plan.layers.front().dp;
  if ((batch.global != 0 && batch.global != planned) || (batch.micro != 0 && batch.micro != plan.micro_batch) ||
      (batch.accumulation != 0 && batch.accumulation != plan.accumulation))
    throw_bad_input(
        "batch.global {}, batch.micro {}, batch.accumulation {} (0: not given) contradict the plan {}: micro_batch {} "
        "x accumulation {} x dp {} = {}",
        batch.global, batch.micro, batch.accumulation, config.parallel.plan, plan.micro_batch, plan.accumulation,
        plan.layers.front().dp, planned);
  return plan;
}

CompileInput make_input(const TrainConfig& config, const ModelSpec& model, const RankPosition& position) {
  CompileInput input;
  input.model = model;
  input.plan = make_plan(config, model, position);
  input.rank = position.rank;
  if (input.rank < 0 || input.rank >= input.plan.num_ranks)
    throw_bad_input("there is no rank {}: the plan has {} ranks, from 0 to {}", input.rank, input.plan.num_ranks,
                    input.plan.num_ranks - 1);
  input.precision = config.model.precision;
  input.optimizer = config.optimizer;
  input.frozen = config.model.frozen;
  input.seq = sequence_length(config, model);
  const DType dtype = config.model.precision == Precision::kF32 ? DType::kF32 : DType::kBF16;
  input.workspace_bytes = [model, plan = input.plan, dtype, seq = input.seq](const LayerDecl& layer, int segment,
                                                                             Direction direction, int64_t tokens) {
    return segment_workspace_bytes(model, plan, layer, segment, direction, {dtype, tokens, seq});
  };
  return input;
}

void refuse_beyond_budget(const Workload& workload, int ranks_on_node) {
  const int64_t budget = device_budget_bytes(workload.config, ranks_on_node);
  const int64_t needed = workload.programs.arena_bytes[static_cast<size_t>(Tier::kDevice)];
  if (needed <= budget) return;
  const Ledger peak = ledger(workload.step(), Tier::kDevice);
  const int64_t activations = peak.bytes[static_cast<size_t>(BookingKind::kActivation)];
  const bool recomputes = workload.input.plan.layers.front().activations == ActivationPolicy::kFull;
  throw_bad_input(
      "the plan needs {} of device memory and {} {}: {} too much. At the peak {} are activations of {} samples: {}",
      format_bytes(needed),
      workload.config.memory.device > 0 ? "memory.device allows"
      : ranks_on_node > 1               ? "a rank's share of the machine's is"
                                        : "the machine has",
      format_bytes(budget), format_bytes(needed - budget), format_bytes(activations), workload.input.plan.micro_batch,
      recomputes ? "a smaller batch.micro (with a larger batch.accumulation) would help"
                 : "parallel.activations = \"selective\" or \"full\", or a smaller batch.micro, would help");
}

}  // namespace

std::string model_config_path(const TrainConfig& config) {
  const std::filesystem::path path = config.model.config;
  return std::filesystem::is_directory(path) ? (path / "config.json").string() : path.string();
}

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

int64_t device_budget_bytes(const TrainConfig& config, int ranks_on_node) {
  return config.memory.device > 0 ? config.memory.device : available_memory_bytes() / ranks_on_node;
}

std::unique_ptr<Workload> make_workload(const TrainConfig& config, const RankPosition& position) {
  auto workload = std::make_unique<Workload>();
  workload->config = config;
  workload->model = read_model_spec(model_config_path(config));
  workload->layers = declare_layers(workload->model, config.model.frozen);
  decay_groups(workload->layers, config.optimizer);  // refuses idle patterns
  workload->input = make_input(config, workload->model, position);
  workload->programs = compile(workload->input, {ProgramKind::kStep, ProgramKind::kEvaluation, ProgramKind::kSave});
  refuse_beyond_budget(*workload, position.on_node);
  return workload;
}

DiskNeed disk_need(const Workload& workload) {
  const int64_t checkpoint = workload.programs.arena_bytes[static_cast<size_t>(Tier::kDisk)];
  return {checkpoint * (workload.config.train.keep_last + 1), 4 * count_parameters(workload.layers)};
}

}  // namespace strata

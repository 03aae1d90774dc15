// SPDX-License-Identifier: Apache-2.0
#include "strata/train/check_report.h"

#include <sys/statvfs.h>

#include <algorithm>

#include "strata/base/error.h"
#include "strata/base/units.h"
#include "strata/layers/freeze.h"
#include "strata/optim/decay_groups.h"
#include "strata/optim/schedule.h"
#include "strata/program/replay.h"
#include "strata/program/report.h"
#include "strata/train/corpus.h"
#include "strata/train/run_folder.h"
#include "strata/train/run_length.h"
#include "strata/train/workload.h"

namespace strata {
namespace {

// ": 30 trained, 12 frozen", or nothing.
std::string frozen_text(const std::vector<LayerDecl>& layers) {
  const int64_t frozen = count_frozen_parameters(layers);
  return frozen == 0 ? "" : fmt::format(": {} trained, {} frozen", count_parameters(layers) - frozen, frozen);
}

std::string model_lines(const Workload& workload) {
  const ModelSpec& model = workload.model;
  const Plan& plan = workload.input.plan;
  return fmt::format(
      "model          {}: {} blocks, hidden {}, {} heads, {} kv heads, ffn {}, vocab {}, positions {}\n"
      "parameters     {}{}\n"
      "batch          global {} = micro {} x accumulation {} x data ranks {}; {} tokens per sample\n"
      "threads        {}\n",
      model.family, model.num_blocks, model.hidden, model.heads, model.kv_heads, model.ffn, model.vocab,
      model.max_positions, count_parameters(workload.layers), frozen_text(workload.layers),
      plan.micro_batch * plan.accumulation * plan.layers.front().dp, plan.micro_batch, plan.accumulation,
      plan.layers.front().dp, workload.input.seq, plan.threads);
}

std::string decay_lines(const Workload& workload) {
  const DecayGroups groups = decay_groups(workload.layers, workload.config.optimizer);
  const std::vector<std::string> frozen = frozen_parameters(workload.layers);
  std::string text = fmt::format("decay          {} tensors: {}\nno decay       {} tensors: {}\n", groups.decay.size(),
                                 fmt::join(groups.decay, " "), groups.no_decay.size(), fmt::join(groups.no_decay, " "));
  if (!frozen.empty()) text += fmt::format("frozen         {} tensors: {}\n", frozen.size(), fmt::join(frozen, " "));
  return text;
}

std::string disk_lines(const Workload& workload, const RunFolder& folder) {
  const DiskNeed need = disk_need(workload);
  struct statvfs disk {};
  const int64_t free_bytes =
      statvfs(folder.path().c_str(), &disk) == 0 ? static_cast<int64_t>(disk.f_bavail * disk.f_frsize) : 0;
  const int64_t total = need.checkpoints + need.model_folder;
  if (total > free_bytes)
    throw_failed_run("{} has {} free; {} checkpoints and the model folder need {}: free {}, or lower train.keep_last",
                     folder.path().string(), format_bytes(free_bytes), workload.config.train.keep_last + 1,
                     format_bytes(total), format_bytes(total - free_bytes));
  return fmt::format("disk           checkpoints {} (keep_last {} + 1 being written), model folder {}, free {}\n",
                     format_bytes(need.checkpoints), workload.config.train.keep_last, format_bytes(need.model_folder),
                     format_bytes(free_bytes));
}

// Compiles for every rank; their programs run to the end together.
std::vector<std::unique_ptr<Workload>> all_ranks(const TrainConfig& config, int64_t num_ranks) {
  std::vector<std::unique_ptr<Workload>> workloads;
  workloads.push_back(make_workload(config, {0, num_ranks, 1}));
  const auto planned = static_cast<int>(workloads[0]->input.plan.num_ranks);
  for (int rank = 1; rank < planned; ++rank) workloads.push_back(make_workload(config, {rank, planned, 1}));
  for (size_t index = 0; index < workloads[0]->programs.programs.size(); ++index) {
    std::vector<Program> programs;
    for (const auto& workload : workloads) programs.push_back(workload->programs.programs[index]);
    const std::vector<std::string> problems = check_world(programs);
    STRATA_CHECK(problems.empty(), "the programs of {} ranks do not run to the end: {}", planned, problems.front());
  }
  return workloads;
}

int64_t arena_of(const Workload& workload) { return workload.programs.arena_bytes[static_cast<size_t>(Tier::kDevice)]; }

const std::unique_ptr<Workload>& fullest(const std::vector<std::unique_ptr<Workload>>& workloads) {
  return *std::max_element(workloads.begin(), workloads.end(),
                           [](const auto& a, const auto& b) { return arena_of(*a) < arena_of(*b); });
}

std::string rank_lines(const std::vector<std::unique_ptr<Workload>>& workloads) {
  if (workloads.size() == 1) return "";
  const Plan& plan = workloads[0]->input.plan;
  std::string text = fmt::format("ranks          {} = {}; arena of each, and the ledger of the fullest:\n",
                                 plan.num_ranks, describe_ranks(plan));
  for (const auto& workload : workloads)
    text += fmt::format("  rank {:<6}  {}\n", workload->input.rank, format_bytes(arena_of(*workload)));
  return text;
}

}  // namespace

std::string check_report(const TrainConfig& config, int64_t num_ranks) {
  const std::vector<std::unique_ptr<Workload>> workloads = all_ranks(config, num_ranks);
  const auto& workload = fullest(workloads);
  const RunFolder folder(config.run.directory);
  const Corpus corpus = open_corpus(config, workload->model, config.run.directory);
  const int64_t steps = last_step(config.train, corpus.train->num_samples(), workload->global_batch(), {});
  validate_schedule(config.schedule, config.optimizer.lr, steps);
  std::string text = model_lines(*workload) + rank_lines(workloads);
  text += fmt::format("data           {} samples, {} targets per epoch", corpus.train->num_samples(),
                      corpus.train->report().targets);
  if (corpus.validation)
    text += fmt::format("; validation {} samples, {} targets", corpus.validation->num_samples(),
                        corpus.validation->report().targets);
  text += fmt::format("\nsteps          {}\n{}{}", steps, decay_lines(*workload), disk_lines(*workload, folder));
  for (const Program& program : workload->programs.programs)
    text += fmt::format("\n{}\n{}", program.name, describe_ledger(program));
  return text;
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/run_log.h"

#include "strata/base/checksum.h"
#include "strata/base/log.h"
#include "strata/base/units.h"
#include "strata/layers/freeze.h"
#include "strata/optim/decay_groups.h"
#include "strata/train/console_metrics.h"
#include "strata/train/csv_metrics.h"
#include "strata/train/loss_curve.h"
#include "strata/train/tensorboard_metrics.h"
#include "strata/train/trace.h"

namespace strata {

void log_run(const Workload& workload, const Corpus& corpus) {
  const DecayGroups groups = decay_groups(workload.layers, workload.config.optimizer);
  const Plan& plan = workload.input.plan;
  log_info("model: {} parameters; {} tensors with weight decay {}, {} without",
           format_count(count_parameters(workload.layers)), groups.decay.size(), workload.config.optimizer.weight_decay,
           groups.no_decay.size());
  if (const std::vector<std::string> frozen = frozen_parameters(workload.layers); !frozen.empty())
    log_info("frozen: {} ({} of the parameters, {} are trained)", fmt::join(frozen, " "),
             format_count(count_frozen_parameters(workload.layers)),
             format_count(count_parameters(workload.layers) - count_frozen_parameters(workload.layers)));
  log_info("with decay: {}", fmt::join(groups.decay, " "));
  log_info("without decay: {}", fmt::join(groups.no_decay, " "));
  log_info("data: {} samples of up to {} tokens, fingerprint {}", corpus.train->num_samples(), corpus.train->seq(),
           checksum_hex(corpus.train->fingerprint()));
  if (corpus.validation)
    log_info("validation: {} samples, fingerprint {}", corpus.validation->num_samples(),
             checksum_hex(corpus.validation->fingerprint()));
  if (plan.num_ranks > 1) log_info("ranks: {} = {}", plan.num_ranks, describe_ranks(plan));
  log_info("memory: arena {}, threads {}", format_bytes(workload.programs.arena_bytes[0]), plan.threads);
  if (plan.threads > available_threads())
    log_warning("{} threads on {} cores this process may use: expect a slow run", plan.threads, available_threads());
}

RunLog::RunLog(const Workload& workload, const RunFolder& folder, int64_t step, int64_t max_steps)
    : loss_curve_(folder.loss_curve()), title_(folder.path().string()) {
  const LogConfig& config = workload.config.log;
  if (!config.metrics_csv.empty()) {
    csv_ = folder.path() / config.metrics_csv;
    writers_.push_back(std::make_unique<CsvMetrics>(csv_, step));
  }
  if (config.tensorboard) writers_.push_back(std::make_unique<TensorboardMetrics>(folder.tensorboard(), step));
  writers_.push_back(std::make_unique<ConsoleMetrics>(stdout, ConsoleOptions{max_steps, config.every}));
}

void RunLog::write(const StepMetrics& metrics) {
  for (const std::unique_ptr<MetricsWriter>& writer : writers_) writer->write(metrics);
}

void RunLog::finish() {
  writers_.clear();
  if (!csv_.empty()) write_loss_curve(loss_curve_, title_, csv_);
}

void write_instruction_trace(const RunFolder& folder, const Workload& workload,
                             const std::vector<InstructionTime>& times) {
  std::vector<TraceRecord> records;
  for (const InstructionTime& time : times) {
    const Instruction& instruction = *time.instruction;
    TraceRecord record;
    record.category = op_name(instruction.op);
    record.queue = queue_name(instruction.queue);
    record.name = instruction_name(instruction, workload.layers);
    record.start_us = time.start_us;
    record.duration_us = time.duration_us;
    if (instruction.micro_batch >= 0) record.args.push_back({"micro_batch", instruction.micro_batch});
    records.push_back(std::move(record));
  }
  write_trace(folder.trace(workload.input.rank), workload.input.rank, records);
}

}  // namespace strata

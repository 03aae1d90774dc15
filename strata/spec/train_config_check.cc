// SPDX-License-Identifier: Apache-2.0
// What holds between options, and the batch-size triangle.
#include <algorithm>

#include "strata/base/error.h"
#include "strata/spec/train_options.h"

namespace strata {
namespace {

bool is_empty(const OptionValue& value) { return plain_text(value).empty(); }

void check_required(const TrainOption& option, const TrainConfig& config, const std::string& where) {
  if (option.details.required && is_empty(option.get(config))) {
    throw_bad_input("{}: {} is required: {}", where, option.key, option.help);
  }
}

void check_effect(const TrainOption& option, const TrainConfig& config, const std::string& where) {
  static const TrainConfig defaults;
  const OptionCondition& condition = option.details.only_with;
  if (condition.key.empty() || option.get(config) == option.get(defaults)) return;
  const TrainOption* other = find_option(condition.key);
  STRATA_CHECK(other != nullptr, "{} depends on {}, which does not exist", option.key, condition.key);
  const std::string actual = plain_text(other->get(config));
  if (std::find(condition.values.begin(), condition.values.end(), actual) != condition.values.end()) return;
  const std::string wanted = fmt::format("{}", fmt::join(condition.values, " or "));
  throw_bad_input("{}: {} = {} has no effect with {} = {}; it needs {} = {}", where, option.key,
                  toml_text(option.get(config)), condition.key, toml_text(other->get(config)), condition.key,
                  wanted.empty() ? "[]" : wanted);
}

void check_length(const TrainLoopConfig& train, const std::string& where) {
  if (train.max_steps > 0 && train.epochs > 0) {
    throw_bad_input("{}: train.max_steps = {} and train.epochs = {} are both given; give one", where, train.max_steps,
                    train.epochs);
  }
  if (train.max_steps == 0 && train.epochs == 0) {
    throw_bad_input("{}: the length of the run is missing; give train.max_steps or train.epochs", where);
  }
}

void check_schedule(const TrainConfig& config, const std::string& where) {
  const ScheduleConfig& schedule = config.schedule;
  const int64_t steps = config.train.max_steps;  // with epochs the steps are known only with the data
  const bool wsd = schedule.kind == ScheduleKind::kWsd;
  if (schedule.min_lr > config.optimizer.lr) {
    throw_bad_input("{}: schedule.min_lr = {} is above optimizer.lr = {}", where, schedule.min_lr, config.optimizer.lr);
  }
  if (wsd && schedule.decay_steps == 0) {
    throw_bad_input("{}: schedule.kind = \"wsd\" needs schedule.decay_steps, the length of the final decay", where);
  }
  if (steps > 0 && schedule.warmup_steps > steps) {
    throw_bad_input("{}: schedule.warmup_steps = {} exceeds train.max_steps = {}", where, schedule.warmup_steps, steps);
  }
  if (steps > 0 && wsd && schedule.decay_steps > steps - schedule.warmup_steps) {
    throw_bad_input("{}: schedule.warmup_steps = {} + schedule.decay_steps = {} exceed train.max_steps = {}", where,
                    schedule.warmup_steps, schedule.decay_steps, steps);
  }
}

void check_evaluation(const TrainConfig& config, const std::string& where) {
  const bool wanted = config.train.eval_every > 0 || config.train.eval_samples > 0;
  if (wanted && config.data.validation.empty() && config.data.validation_fraction == 0) {
    throw_bad_input(
        "{}: train.eval_every = {} and train.eval_samples = {} ask for evaluations, but there is no validation data; "
        "give data.validation or data.validation_fraction",
        where, config.train.eval_every, config.train.eval_samples);
  }
}

void check_paths(const TrainConfig& config, const std::string& where) {
  if (config.log.metrics_csv.find('/') != std::string::npos) {
    throw_bad_input("{}: log.metrics_csv = \"{}\" is a path; it is a file name inside run.directory = \"{}\"", where,
                    config.log.metrics_csv, config.run.directory);
  }
}

// `part` samples make up one slice of a global batch: the global batch must be a multiple of it.
int64_t divide_batch(int64_t global, int64_t part, const std::string& equation) {
  if (global % part != 0) {
    const int64_t below = global / part * part;
    throw_bad_input("{}: batch.global {} is not a multiple of {}; {}{} would work", equation, global, part,
                    below > 0 ? fmt::format("{} or ", below) : "", below + part);
  }
  return global / part;
}

// The equation with the numbers that are known.
std::string batch_equation(const BatchConfig& given, const std::string& data_ranks) {
  const auto number = [](int64_t value, const char* unknown) { return value > 0 ? fmt::format("{}", value) : unknown; };
  return fmt::format("batch.global {} = batch.micro {} x batch.accumulation {} x {} data-parallel ranks",
                     number(given.global, "g"), number(given.micro, "m"), number(given.accumulation, "a"), data_ranks);
}

void check_batch_given(const BatchConfig& given) {
  if (given.global > 0 || given.micro > 0) return;
  if (given.accumulation > 0) {
    throw_bad_input("batch.accumulation = {} alone does not give the batch size; add batch.global or batch.micro",
                    given.accumulation);
  }
  throw_bad_input("the batch size is missing; give batch.global, or batch.micro and batch.accumulation");
}

}  // namespace

BatchSizes resolve_batch(const BatchConfig& given, int64_t data_ranks) {
  STRATA_CHECK(given.global >= 0 && given.micro >= 0 && given.accumulation >= 0 && data_ranks >= 1,
               "batch {} / {} / {} over {} ranks", given.global, given.micro, given.accumulation, data_ranks);
  check_batch_given(given);
  const std::string equation = batch_equation(given, fmt::format("{}", data_ranks));
  BatchSizes sizes{given.global, given.micro, given.accumulation};
  if (sizes.accumulation == 0 && (sizes.global == 0 || sizes.micro == 0)) sizes.accumulation = 1;
  if (sizes.global == 0) {
    sizes.global = sizes.micro * sizes.accumulation * data_ranks;
  } else if (sizes.micro == 0) {
    sizes.micro = divide_batch(sizes.global, sizes.accumulation * data_ranks, equation);
  } else if (sizes.accumulation == 0) {
    sizes.accumulation = divide_batch(sizes.global, sizes.micro * data_ranks, equation);
  } else if (sizes.global != sizes.micro * sizes.accumulation * data_ranks) {
    throw_bad_input("{} does not hold: the right side is {}; remove one of the three or correct it", equation,
                    sizes.micro * sizes.accumulation * data_ranks);
  }
  return sizes;
}

void check_train_config(const TrainConfig& config, const std::string& where) {
  for (const TrainOption& option : train_config_options()) {
    check_required(option, config, where);
    check_effect(option, config, where);
  }
  check_length(config.train, where);
  check_schedule(config, where);
  check_evaluation(config, where);
  check_paths(config, where);
  check_batch_given(config.batch);
  const BatchConfig& batch = config.batch;
  // Whatever the number of ranks turns out to be.
  if (batch.global > 0) {
    divide_batch(batch.global, std::max<int64_t>(1, batch.micro) * std::max<int64_t>(1, batch.accumulation),
                 batch_equation(batch, "r"));
  }
}

}  // namespace strata

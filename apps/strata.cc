// SPDX-License-Identifier: Apache-2.0
// The `strata` command: parse, call, print. Exit codes: 0 done, 2 bad input, 1 failed run, 3 stopped by a signal after
// saving.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/error.h"
#include "strata/base/units.h"
#include "strata/comm/mpi/mpi_comm.h"
#include "strata/program/report.h"
#include "strata/train/check_report.h"
#include "strata/train/generation.h"
#include "strata/train/launch.h"
#include "strata/train/model_evaluation.h"
#include "strata/train/ranks.h"
#include "strata/train/trainer.h"

namespace {

using Overrides = std::vector<std::pair<std::string, std::string>>;

constexpr int kExitBadInput = 2;
constexpr int kExitFailedRun = 1;
constexpr int kExitStopped = 3;

// "--optimizer.lr=3e-4" and "--optimizer.lr 3e-4" to {"optimizer.lr", "3e-4"}.
Overrides parse_overrides(const std::vector<std::string>& arguments) {
  Overrides overrides;
  for (size_t index = 0; index < arguments.size(); ++index) {
    const std::string& argument = arguments[index];
    if (!argument.starts_with("--") || argument.find('.') == std::string::npos)
      strata::throw_bad_input("unexpected argument '{}': options of the config look like --section.key=value",
                              argument);
    const size_t equals = argument.find('=');
    if (equals != std::string::npos) {
      overrides.push_back({argument.substr(2, equals - 2), argument.substr(equals + 1)});
    } else if (index + 1 < arguments.size()) {
      overrides.push_back({argument.substr(2), arguments[++index]});
    } else {
      strata::throw_bad_input("{} has no value: write {}=value", argument, argument);
    }
  }
  return overrides;
}

constexpr double kSecondsToWaitForRanks = 1800;

int train_rank(const strata::TrainConfig& config, strata::Comm* comm) {
  strata::Trainer trainer(config, comm);
  const strata::TrainResult result = trainer.train();
  if (comm != nullptr && comm->rank() > 0) return result.stopped ? kExitStopped : 0;
  const std::string folder = trainer.workload().config.run.directory;
  if (result.stopped) {
    fmt::print("stopped after step {} and saved; the same command resumes\n", result.step);
    return kExitStopped;
  }
  fmt::print("model       {}\n", result.model_folder);
  const std::string log = trainer.workload().config.log.metrics_csv;
  if (!log.empty()) fmt::print("loss curve  {}/loss.svg\nlog         {}/{}\n", folder, folder, log);
  return 0;
}

// One of the ranks that MPI has started. What a rank alone meets it tells with its number.
int train_started(const std::string& path, const std::vector<std::string>& options, int64_t num_ranks) {
  const std::unique_ptr<strata::Comm> comm = strata::make_mpi_comm(kSecondsToWaitForRanks);
  try {
    strata::TrainConfig config;
    strata::Ranks(comm.get()).together([&] { config = strata::read_train_config(path, parse_overrides(options)); });
    strata::require_num_ranks(num_ranks, *comm);
    return train_rank(config, comm.get());
  } catch (const strata::Error& error) {
    if (comm->rank() == 0) throw;
    throw strata::Error(error.kind(), fmt::format("rank {}: {}", comm->rank(), error.what()));
  }
}

// `ranks` 0: as many as MPI has started, or one. `command`: this process' words.
int train(const std::string& path, const std::vector<std::string>& options, int64_t ranks,
          const std::vector<std::string>& command) {
  if (strata::started_by_mpi()) return train_started(path, options, ranks);
  const strata::TrainConfig config = strata::read_train_config(path, parse_overrides(options));
  return ranks > 1 ? strata::run_ranks(config, ranks, command) : train_rank(config, nullptr);
}

int check(const std::string& config, const Overrides& overrides, int64_t ranks) {
  fmt::print("{}", strata::check_report(strata::read_train_config(config, overrides), ranks));
  return 0;
}

int program(const std::string& config, const Overrides& overrides, const std::string& name,
            const strata::RankPosition& position) {
  const auto workload = strata::make_workload(strata::read_train_config(config, overrides), position);
  const strata::Program* chosen = workload->programs.find(name);
  if (chosen == nullptr) strata::throw_bad_input("there is no program '{}': step, evaluation or save", name);
  fmt::print("{}", strata::describe_program(*chosen, workload->layers));
  return 0;
}

struct GenerateOptions {
  std::string model;
  std::string prompt;
  int threads = 0;
  strata::SamplingOptions sampling;
};

int generate(const GenerateOptions& options) {
  strata::Generator generator(options.model, options.threads);
  const std::vector<int32_t> prompt = generator.tokenizer().encode(options.prompt);
  if (!prompt.empty()) fmt::print("{}", options.prompt);
  generator.generate(prompt, options.sampling, [&](int32_t token) {
    fmt::print("{}", generator.tokenizer().decode(std::span(&token, 1)));
    std::fflush(stdout);
  });
  fmt::print("\n");
  return 0;
}

int evaluate(const strata::ModelEvaluationOptions& options) {
  const strata::ModelEvaluation evaluation = strata::evaluate_model(options);
  fmt::print(
      "samples        {}\ntokens         {}\nloss           {:.6f}\nperplexity     {:.4f}\nbits per byte  {:.4f}\n",
      evaluation.result.samples, evaluation.result.counted, evaluation.result.loss, evaluation.result.perplexity(),
      evaluation.bits_per_byte());
  return 0;
}

CLI::App* add_config_command(CLI::App& app, const std::string& name, const std::string& help, std::string& config) {
  CLI::App* command = app.add_subcommand(name, help + "; any option of the config can follow as --section.key=value");
  command->add_option("config", config, "the run's TOML file")->required();
  command->allow_extras();
  return command;
}

CLI::App* add_generate_command(CLI::App& app, GenerateOptions& generation) {
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt with a trained model");
  command->add_option("--model", generation.model, "model folder")->required();
  command->add_option("--prompt", generation.prompt, "text to continue")->required();
  command->add_option("--max-tokens", generation.sampling.max_tokens, "most new tokens");
  command->add_option("--temperature", generation.sampling.temperature, "0: always the likeliest token");
  command->add_option("--top-k", generation.sampling.top_k, "only the k likeliest tokens; 0: all");
  command->add_option("--top-p", generation.sampling.top_p, "only the likeliest tokens that make up p");
  command->add_option("--seed", generation.sampling.seed, "of the sampling");
  command->add_option("--threads", generation.threads, "0: all cores");
  return command;
}

CLI::App* add_eval_command(CLI::App& app, strata::ModelEvaluationOptions& evaluation) {
  CLI::App* command = app.add_subcommand("eval", "Loss, perplexity and bits per byte of a model on text");
  command->add_option("--model", evaluation.model_folder, "model folder")->required();
  command->add_option("--data", evaluation.data, "text, JSONL or token files")->required();
  command->add_option("--seq", evaluation.seq, "tokens per sample; 0: the model's positions");
  command->add_option("--max-samples", evaluation.max_samples, "0: all");
  command->add_option("--threads", evaluation.threads, "0: all cores");
  return command;
}

void refuse_unknown_command(const CLI::App& app, const std::string& first) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (!first.starts_with('-') && std::find(names.begin(), names.end(), first) == names.end())
    strata::throw_bad_input("{}: use {}",
                            first.empty() ? "no command is given" : fmt::format("there is no command '{}'", first),
                            fmt::join(names, ", "));
}

int run(int argc, char** argv) {
  CLI::App app{"Strata trains transformers that are larger than the memory they run in"};
  app.require_subcommand(1);
  std::string config;
  CLI::App* train_command = add_config_command(app, "train", "Train, or resume, the run of a config", config);
  bool profile = false;
  train_command->add_flag("--profile", profile, "also write a Chrome trace of measured instructions (log.profile)");
  int64_t ranks = 0;
  const auto add_ranks = [&](CLI::App* command) {
    command->add_option("--ranks", ranks, "number of ranks, each a process of mpirun; 0: what the plan has")
        ->check(CLI::Range(0, 1 << 20));
  };
  add_ranks(train_command);
  CLI::App* check_command =
      add_config_command(app, "check", "Sizes, memory and disk of a run, without training", config);
  CLI::App* program_command =
      add_config_command(app, "program", "A rank's instructions, with the bookings each one touches", config);
  std::string program_name = "step";
  program_command->add_option("--name", program_name, "step, evaluation or save");
  int rank = 0;
  program_command->add_option("--rank", rank, "whose program");
  add_ranks(check_command);
  add_ranks(program_command);
  CLI::App* options_command = app.add_subcommand("options", "Every option of the config: default, range, meaning");
  bool markdown = false;
  options_command->add_flag("--markdown", markdown, "as docs/config.md");

  GenerateOptions generation;
  const CLI::App* generate_command = add_generate_command(app, generation);
  strata::ModelEvaluationOptions evaluation;
  const CLI::App* eval_command = add_eval_command(app, evaluation);

  refuse_unknown_command(app, argc > 1 ? argv[1] : "");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    strata::throw_bad_input("{} (see strata --help)", error.what());
  }
  if (*train_command) {
    std::vector<std::string> options = train_command->remaining();
    if (profile) options.push_back("--log.profile=true");
    return train(config, options, ranks, std::vector<std::string>(argv, argv + argc));
  }
  if (*check_command) return check(config, parse_overrides(check_command->remaining()), ranks);
  if (*program_command)
    return program(config, parse_overrides(program_command->remaining()), program_name, {rank, ranks, 1});
  if (*generate_command) return generate(generation);
  if (*eval_command) return evaluate(evaluation);
  if (*options_command) fmt::print("{}", markdown ? strata::options_markdown() : strata::options_text());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of file sizes then fails with a message
  try {
    return run(argc, argv);
  } catch (const strata::Error& error) {
    fmt::print(stderr, "strata: {}\n", error.what());
    return error.kind() == strata::ErrorKind::kBadInput ? kExitBadInput : kExitFailedRun;
  } catch (const std::exception& error) {
    fmt::print(stderr, "strata: failed: {}\n", error.what());
    return kExitFailedRun;
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "strata/base/error.h"
#include "strata/spec/train_options.h"

namespace strata {
namespace {

const char* const kIntroduction =
    "# Options of a training run\n"
    "\n"
    "Generated from the option table in `strata/spec/train_options.cc`; do not edit.\n"
    "\n"
    "A run is described by a TOML file with the sections below. Any option can be overridden on the command line as\n"
    "`--section.key=value`; lists are then separated by commas. Unknown keys, wrong types, values out of range, "
    "contradicting\n"
    "options and options without effect are refused. Relative paths are relative to the current folder.\n"
    "\n"
    "Batch sizes: `batch.global = batch.micro x batch.accumulation x data-parallel ranks`. Two given determine the "
    "third; with\n"
    "one given, the accumulation is 1.\n";

std::string default_text(const TrainOption& option) {
  const OptionValue value = option.get(TrainConfig{});
  return option.details.required && plain_text(value).empty() ? "required" : toml_text(value);
}

std::string condition_text(const OptionCondition& condition) {
  if (condition.key.empty()) return "";
  const std::string values = fmt::format("{}", fmt::join(condition.values, " or "));
  return fmt::format("; only with {} = {}", condition.key, values.empty() ? "[]" : values);
}

}  // namespace

std::string options_text() {
  std::string text;
  for (const TrainOption& option : train_config_options()) {
    text += fmt::format("{} ({}; default {}{})\n    {}\n", option.key, describe_values(option), default_text(option),
                        condition_text(option.details.only_with), option.help);
  }
  return text;
}

std::string options_markdown() {
  std::string text = kIntroduction, section;
  for (const TrainOption& option : train_config_options()) {
    if (option.section() != section) {
      section = option.section();
      text += fmt::format("\n## [{}]\n\n| key | value | default | meaning |\n|---|---|---|---|\n", section);
    }
    text += fmt::format("| `{}` | {} | `{}` | {}{} |\n", option.name(), describe_values(option), default_text(option),
                        option.help, condition_text(option.details.only_with));
  }
  return text;
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// The one declaration of every training option: key, member, range, choices, help. It drives TOML and override parsing,
// the messages, `to_toml`, the help text and docs/config.md. The default is the member's initialiser in train_config.h.
// Built once, never changed: safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "strata/spec/train_config.h"

namespace strata {

enum class OptionType { kText, kTextList, kInteger, kReal, kBoolean, kChoice, kBytes };

// A choice is held as its text, bytes as their number.
using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

// Of numbers; every value is finite.
struct OptionRange {
  double min = 0;
  double max = std::numeric_limits<double>::max();
  bool above_min = false;  // min itself is excluded
  bool below_max = false;
};

// The option changes something only while another one has one of these values; set without it, it is refused.
struct OptionCondition {
  std::string key;
  std::vector<std::string> values;  // as plain_text writes them
};

struct OptionDetails {
  OptionRange range = {};
  std::vector<std::string> choices = {};      // of an enum in its order, or of a text
  std::vector<std::string> other_names = {};  // what other programs call it: for suggestions only
  OptionCondition only_with = {};
  bool required = false;  // may not be empty
  bool bytes = false;     // an integer that is also written "8GiB"
};

struct TrainOption {
  std::string key;  // "optimizer.lr"
  OptionType type;
  std::string help;
  OptionDetails details;
  std::function<OptionValue(const TrainConfig&)> get;
  std::function<void(TrainConfig&, const OptionValue&)> set;  // of a value that fits type, range and choices

  std::string section() const { return key.substr(0, key.find('.')); }
  std::string name() const { return key.substr(key.find('.') + 1); }
};

// Grouped by section, in the order of the documentation.
const std::vector<TrainOption>& train_config_options();
const TrainOption* find_option(std::string_view key);  // null when there is none
std::vector<std::string> option_sections();

// ": did you mean optimizer.lr?" for an unknown dotted key (or one without a section), or nothing.
std::string suggest_option(const std::string& key);
std::string suggest_section(const std::string& section);

// What may be written: "number above 0", "one of constant, linear", ...
std::string describe_values(const TrainOption& option);
// As TOML writes it (text quoted), and as people do (text bare, lists with commas).
std::string toml_text(const OptionValue& value);
std::string plain_text(const OptionValue& value);

// The value of a command-line text; throws Error with `where` when it is not of the option's type.
OptionValue parse_option_text(const TrainOption& option, const std::string& text, const std::string& where);
// Refuses what is out of range or not a choice, then sets it.
void assign_option(const TrainOption& option, const OptionValue& value, const std::string& where, TrainConfig& config);

// Everything between the options of a finished config: required ones, contradictions, options without effect.
void check_train_config(const TrainConfig& config, const std::string& where);

}  // namespace strata

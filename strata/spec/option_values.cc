// SPDX-License-Identifier: Apache-2.0
// Values of training options as text: what is allowed, how it is written, how it is read; and near misses of keys.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "strata/base/error.h"
#include "strata/base/units.h"
#include "strata/spec/train_options.h"

namespace strata {
namespace {

// TOML tells reals from integers by their point or exponent.
std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// TOML's basic strings have the escapes of JSON.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string quoted_list(const std::vector<std::string>& items) {
  std::vector<std::string> quoted_items;
  for (const std::string& item : items) quoted_items.push_back(quoted(item));
  return fmt::format("[{}]", fmt::join(quoted_items, ", "));
}

std::string range_text(const OptionRange& range) {
  const bool bounded = range.max < 1e18;
  if (range.min == 0 && range.above_min && !bounded) return " above 0";
  const std::string low = fmt::format(" {} {}", range.above_min ? "above" : "at least", range.min);
  if (!bounded) return low;
  return fmt::format("{} and {} {}", low, range.below_max ? "below" : "at most", range.max);
}

bool in_range(double value, const OptionRange& range) {
  const bool above = range.above_min ? value > range.min : value >= range.min;
  const bool below = range.below_max ? value < range.max : value <= range.max;
  return above && below;
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

template <typename Number>
Number parse_number(const TrainOption& option, const std::string& text, const std::string& where) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw_bad_input("{} in {}: expected {}, found \"{}\"", option.key, where, describe_values(option), text);
  }
  return number;
}

int64_t parse_size(const TrainOption& option, const std::string& text, const std::string& where) {
  try {
    return parse_bytes(text);
  } catch (const Error& failure) {
    throw_bad_input("{} in {}: {}", option.key, where, failure.what());
  }
}

bool parse_boolean(const TrainOption& option, const std::string& text, const std::string& where) {
  if (text == "true") return true;
  if (text == "false") return false;
  throw_bad_input("{} in {}: expected true or false, found \"{}\"", option.key, where, text);
}

using Words = std::vector<std::pair<std::string, std::string>>;  // a word, and the key it means

void append_words(const TrainOption& option, Words& words) {
  words.emplace_back(option.name(), option.key);
  for (const std::string& name : option.details.other_names) words.emplace_back(name, option.key);
}

std::string meaning_of(const std::string& word, const Words& words) {
  const auto found = std::find_if(words.begin(), words.end(), [&](const auto& entry) { return entry.first == word; });
  return found == words.end() ? "" : found->second;
}

std::string near_meaning_of(const std::string& word, const Words& words) {
  std::vector<std::string> candidates;
  for (const auto& entry : words) candidates.push_back(entry.first);
  return meaning_of(closest_match(word, candidates), words);
}

}  // namespace

const TrainOption* find_option(std::string_view key) {
  for (const TrainOption& option : train_config_options()) {
    if (option.key == key) return &option;
  }
  return nullptr;
}

std::vector<std::string> option_sections() {
  std::vector<std::string> sections;
  for (const TrainOption& option : train_config_options()) {
    if (sections.empty() || sections.back() != option.section()) sections.push_back(option.section());
  }
  return sections;
}

std::string suggest_option(const std::string& key) {
  const size_t dot = key.find('.');
  const std::string section = dot == std::string::npos ? "" : key.substr(0, dot);
  const std::string name = dot == std::string::npos ? key : key.substr(dot + 1);
  Words own, all, full;
  for (const TrainOption& option : train_config_options()) {
    if (option.section() == section) append_words(option, own);
    append_words(option, all);
    full.emplace_back(option.key, option.key);
  }
  for (const std::string& meant : {meaning_of(name, own), meaning_of(name, all), near_meaning_of(name, own),
                                   near_meaning_of(key, full), near_meaning_of(name, all)}) {
    if (!meant.empty()) return fmt::format(": did you mean {}?", meant);
  }
  return "";
}

std::string suggest_section(const std::string& section) {
  static const std::map<std::string, std::string> other_names = {
      {"optim", "optimizer"}, {"training", "train"},     {"trainer", "train"},         {"dataset", "data"},
      {"logging", "log"},     {"scheduler", "schedule"}, {"lr_scheduler", "schedule"}, {"distributed", "parallel"}};
  const auto found = other_names.find(section);
  if (found != other_names.end()) return fmt::format(": did you mean {}?", found->second);
  const std::string near = did_you_mean(section, option_sections());
  return near.empty() ? fmt::format("; the sections are {}", fmt::join(option_sections(), ", ")) : near;
}

std::string describe_values(const TrainOption& option) {
  switch (option.type) {
    case OptionType::kText: return "text";
    case OptionType::kTextList: return "list of texts";
    case OptionType::kInteger: return "integer" + range_text(option.details.range);
    case OptionType::kReal: return "number" + range_text(option.details.range);
    case OptionType::kBoolean: return "true or false";
    case OptionType::kChoice: return fmt::format("one of {}", fmt::join(option.details.choices, ", "));
    case OptionType::kBytes: return "size such as \"8GiB\" or a number of bytes";
  }
  return "";
}

std::string toml_text(const OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return quoted(*text);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return quoted_list(*list);
  return plain_text(value);
}

std::string plain_text(const OptionValue& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* real = std::get_if<double>(&value)) return real_text(*real);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return fmt::format("{}", fmt::join(std::get<std::vector<std::string>>(value), ","));
}

OptionValue parse_option_text(const TrainOption& option, const std::string& text, const std::string& where) {
  switch (option.type) {
    case OptionType::kText:
    case OptionType::kChoice: return text;
    case OptionType::kTextList: return split_commas(text);
    case OptionType::kInteger: return parse_number<int64_t>(option, text, where);
    case OptionType::kReal: return parse_number<double>(option, text, where);
    case OptionType::kBoolean: return parse_boolean(option, text, where);
    case OptionType::kBytes: return parse_size(option, text, where);
  }
  return text;
}

void assign_option(const TrainOption& option, const OptionValue& value, const std::string& where, TrainConfig& config) {
  bool allowed = true;
  if (option.type == OptionType::kChoice) {
    const auto& choices = option.details.choices;
    allowed = std::find(choices.begin(), choices.end(), std::get<std::string>(value)) != choices.end();
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    allowed = in_range(static_cast<double>(*integer), option.details.range);
  } else if (const auto* real = std::get_if<double>(&value)) {
    allowed = in_range(*real, option.details.range);
  }
  if (!allowed) {
    throw_bad_input("{} = {} in {}: must be {}", option.key, toml_text(value), where, describe_values(option));
  }
  option.set(config, value);
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/train_config.h"

#include <toml++/toml.h>

#include <fstream>
#include <sstream>

#include "strata/base/error.h"
#include "strata/base/units.h"
#include "strata/spec/train_options.h"

namespace strata {
namespace {

std::string place(const std::string& where, const toml::source_region& source) {
  return fmt::format("{} line {}", where, source.begin.line);
}

std::string_view toml_type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: return "a section";
    case toml::node_type::array: return "a list";
    case toml::node_type::string: return "a text";
    case toml::node_type::integer: return "an integer";
    case toml::node_type::floating_point: return "a number";
    case toml::node_type::boolean: return "true or false";
    default: return "a date or time";
  }
}

[[noreturn]] void refuse_type(const TrainOption& option, const toml::node& node, const std::string& where) {
  throw_bad_input("{} in {}: expected {}, found {}", option.key, where, describe_values(option), toml_type_name(node));
}

std::vector<std::string> text_list(const TrainOption& option, const toml::node& node, const std::string& where) {
  if (const auto text = node.value_exact<std::string>()) return {*text};
  if (!node.is_array()) refuse_type(option, node, where);
  std::vector<std::string> texts;
  for (const toml::node& item : *node.as_array()) {
    const auto text = item.value_exact<std::string>();
    if (!text)
      throw_bad_input("{} in {}: expected a list of texts, found {} in it", option.key, where, toml_type_name(item));
    texts.push_back(*text);
  }
  return texts;
}

OptionValue value_of(const TrainOption& option, const toml::node& node, const std::string& where) {
  switch (option.type) {
    case OptionType::kTextList: return text_list(option, node, where);
    case OptionType::kText:
    case OptionType::kChoice:
      if (const auto text = node.value_exact<std::string>()) return *text;
      break;
    case OptionType::kBoolean:
      if (const auto boolean = node.value_exact<bool>()) return *boolean;
      break;
    case OptionType::kReal:
      if (node.is_number()) return *node.value<double>();
      break;
    case OptionType::kBytes:
      if (const auto text = node.value_exact<std::string>()) return parse_option_text(option, *text, where);
      [[fallthrough]];
    case OptionType::kInteger:
      if (const auto integer = node.value_exact<int64_t>()) return *integer;
      break;
  }
  refuse_type(option, node, where);
}

void read_section(const std::string& section, const toml::table& table, const std::string& where, TrainConfig& config) {
  for (const auto& [name, node] : table) {
    const std::string key = fmt::format("{}.{}", section, name.str());
    const std::string here = place(where, name.source());
    const TrainOption* option = find_option(key);
    if (option == nullptr) throw_bad_input("unknown key {} in {}{}", key, here, suggest_option(key));
    assign_option(*option, value_of(*option, node, here), here, config);
  }
}

void read_document(const toml::table& document, const std::string& where, TrainConfig& config) {
  const std::vector<std::string> sections = option_sections();
  for (const auto& [name, node] : document) {
    const std::string key(name.str());
    const std::string here = place(where, name.source());
    const bool known = std::find(sections.begin(), sections.end(), key) != sections.end();
    if (known && !node.is_table())
      throw_bad_input("{} in {} is {}; it is a section: write [{}]", key, here, toml_type_name(node), key);
    if (!known && node.is_table()) throw_bad_input("unknown section {} in {}{}", key, here, suggest_section(key));
    if (!known) throw_bad_input("unknown key {} in {}{}", key, here, suggest_option(key));
    read_section(key, *node.as_table(), where, config);
  }
}

void apply_override(const std::string& key, const std::string& text, TrainConfig& config) {
  const std::string where = fmt::format("--{}={}", key, text);
  const TrainOption* option = find_option(key);
  if (option == nullptr) throw_bad_input("unknown key {} in {}{}", key, where, suggest_option(key));
  assign_option(*option, parse_option_text(*option, text, where), where, config);
}

}  // namespace

TrainConfig parse_train_config(const std::string& toml_text, const std::string& where,
                               const std::vector<std::pair<std::string, std::string>>& overrides) {
  TrainConfig config;
  toml::table document;
  try {
    document = toml::parse(toml_text, where);
  } catch (const toml::parse_error& failure) {
    throw_bad_input("{} is not valid TOML: {}", place(where, failure.source()), failure.description());
  }
  read_document(document, where, config);
  for (const auto& [key, text] : overrides) apply_override(key, text, config);
  check_train_config(config, where);
  return config;
}

TrainConfig read_train_config(const std::string& toml_path,
                              const std::vector<std::pair<std::string, std::string>>& overrides) {
  std::ifstream file(toml_path, std::ios::binary);
  std::ostringstream text;
  // Reading the buffer fails for a folder, which opens like a file.
  if (!file || !(text << file.rdbuf())) {
    throw_bad_input("cannot read {}: the file does not exist, is empty or is not readable", toml_path);
  }
  return parse_train_config(text.str(), toml_path, overrides);
}

std::string to_toml(const TrainConfig& config) {
  std::string text, section;
  for (const TrainOption& option : train_config_options()) {
    if (option.section() != section) text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", option.section());
    section = option.section();
    text += fmt::format("{} = {}\n", option.name(), toml_text(option.get(config)));
  }
  return text;
}

}  // namespace strata

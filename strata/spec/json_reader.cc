// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/json_reader.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "strata/base/error.h"
#include "strata/base/units.h"

namespace strata {

using nlohmann::json;

json read_json_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_bad_input("cannot read {}: the file does not exist or is not readable", path);
  try {
    return json::parse(file);
  } catch (const json::exception& failure) {
    throw_bad_input("{} is not valid JSON: {}", path, failure.what());
  }
}

double shortest_decimal(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

JsonReader::JsonReader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) throw_bad_input("{}: expected a JSON object, found {}", where_, object.type_name());
}

const json* JsonReader::find(const std::string& key) {
  known_.push_back(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

bool JsonReader::has(const std::string& key) { return find(key) != nullptr; }

bool JsonReader::has_value(const std::string& key) {
  const json* value = find(key);
  return value != nullptr && !value->is_null();
}

const json& JsonReader::at(const std::string& key) {
  const json* value = find(key);
  if (value == nullptr) throw_bad_input("{}: key {} is missing", where_, key);
  return *value;
}

int64_t JsonReader::integer(const std::string& key, std::optional<int64_t> fallback, int64_t min, int64_t max) {
  const json* value = fallback ? find(key) : &at(key);
  if (value == nullptr) return *fallback;
  if (!value->is_number_integer()) throw_bad_input("{}: {} must be an integer, found {}", where_, key, value->dump());
  const bool too_large = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (too_large || value->get<int64_t>() < min || value->get<int64_t>() > max) {
    throw_bad_input("{}: {} is {}, must be from {} to {}", where_, key, value->dump(), min, max);
  }
  return value->get<int64_t>();
}

double JsonReader::real(const std::string& key, double fallback, double min, double max) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number()) throw_bad_input("{}: {} must be a number, found {}", where_, key, value->dump());
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    throw_bad_input("{}: {} is {}, must be from {} to {}", where_, key, value->dump(), min, max);
  }
  return number;
}

bool JsonReader::boolean(const std::string& key, bool fallback) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) throw_bad_input("{}: {} must be true or false, found {}", where_, key, value->dump());
  return value->get<bool>();
}

std::string JsonReader::text(const std::string& key, std::optional<std::string> fallback) {
  const json* value = fallback ? find(key) : &at(key);
  if (value == nullptr) return *fallback;
  if (!value->is_string()) throw_bad_input("{}: {} must be a string, found {}", where_, key, value->dump());
  return value->get<std::string>();
}

size_t JsonReader::choice(const std::string& key, std::optional<size_t> fallback,
                          const std::vector<std::string>& choices) {
  const auto fallback_text = fallback ? std::optional(choices[*fallback]) : std::nullopt;
  const std::string name = text(key, fallback_text);
  const auto found = std::find(choices.begin(), choices.end(), name);
  if (found == choices.end()) {
    throw_bad_input("{}: {} \"{}\" is not supported; choose from {}", where_, key, name, fmt::join(choices, ", "));
  }
  return static_cast<size_t>(found - choices.begin());
}

void JsonReader::require(const std::string& key, const json& value) {
  const json* found = find(key);
  if (found != nullptr && *found != value) {
    throw_bad_input("{}: {} {} is not supported; only {} is", where_, key, found->dump(), value.dump());
  }
}

void JsonReader::ignore(const std::vector<std::string>& keys) { known_.insert(known_.end(), keys.begin(), keys.end()); }

void JsonReader::refuse_unknown(const std::map<std::string, std::string>& meant) const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const auto other_name = meant.find(key);
    const std::string hint =
        other_name != meant.end() ? fmt::format(": did you mean {}?", other_name->second) : did_you_mean(key, known_);
    throw_bad_input("unknown key {} = {} in {}{}", key, value.dump(), where_, hint);
  }
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// Strict reading of one JSON object: every key that is asked for becomes known, and refuse_unknown() at the end throws
// for the rest. All refusals are Errors that name the source, the key, the value found and what would work. Holds a
// reference to the object: it must outlive the reader.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace strata {

// The parsed file; throws Error when it cannot be read or is not JSON (with line and column).
nlohmann::json read_json_file(const std::string& path);

// The shortest decimal that is this float: 1e-05, not 9.999999747378752e-06.
double shortest_decimal(float value);

class JsonReader {
 public:
  // `where` names the source in messages: "config.json", "plan.json layers[3]".
  JsonReader(const nlohmann::json& object, std::string where);

  bool has(const std::string& key);                  // present, and makes the key known
  bool has_value(const std::string& key);            // present and not null
  const nlohmann::json& at(const std::string& key);  // throws when absent

  // Without `fallback` the key must be present.
  int64_t integer(const std::string& key, std::optional<int64_t> fallback, int64_t min, int64_t max);
  double real(const std::string& key, double fallback, double min, double max);
  bool boolean(const std::string& key, bool fallback);
  std::string text(const std::string& key, std::optional<std::string> fallback);
  // The index of the key's text in `choices`.
  size_t choice(const std::string& key, std::optional<size_t> fallback, const std::vector<std::string>& choices);

  // The key is absent or has exactly this value; anything else would change the maths, and is refused.
  void require(const std::string& key, const nlohmann::json& value);
  // Known, whatever the value.
  void ignore(const std::vector<std::string>& keys);
  // `meant` maps names from elsewhere to the key that is meant here.
  void refuse_unknown(const std::map<std::string, std::string>& meant = {}) const;

 private:
  const nlohmann::json* find(const std::string& key);

  const nlohmann::json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/ckpt/manifest.h"

#include <limits>
#include <string_view>

#include "strata/base/checksum.h"
#include "strata/base/error.h"
#include "strata/spec/json_reader.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFormat = "strata checkpoint";
constexpr int64_t kVersion = 1;
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
// Between the checked text and its checksum, and after it.
constexpr std::string_view kBeforeChecksum = ",\n \"checksum\": \"";
constexpr std::string_view kAfterChecksum = "\"\n}\n";
constexpr size_t kChecksumDigits = 16;

ordered_json trainer_json(const TrainerState& trainer) {
  return {{"step", trainer.step},
          {"update_step", trainer.update_step},
          {"skipped_steps", trainer.skipped_steps},
          {"samples_seen", trainer.samples_seen},
          {"tokens_seen", trainer.tokens_seen},
          {"peak_learning_rate", trainer.peak_learning_rate},
          {"tokenizer", trainer.tokenizer},
          {"data_fingerprint", trainer.data_fingerprint},
          {"config_toml", trainer.config_toml}};
}

TrainerState parse_trainer(const nlohmann::json& json, const std::string& where) {
  JsonReader reader(json, where);
  TrainerState trainer;
  trainer.step = reader.integer("step", {}, 0, kLargest);
  trainer.update_step = reader.integer("update_step", {}, 0, kLargest);
  trainer.skipped_steps = reader.integer("skipped_steps", {}, 0, kLargest);
  trainer.samples_seen = reader.integer("samples_seen", {}, 0, kLargest);
  trainer.tokens_seen = reader.integer("tokens_seen", {}, 0, kLargest);
  reader.at("peak_learning_rate");
  trainer.peak_learning_rate = reader.real("peak_learning_rate", 0, 0, std::numeric_limits<double>::max());
  trainer.tokenizer = reader.text("tokenizer", {});
  trainer.data_fingerprint = reader.text("data_fingerprint", {});
  trainer.config_toml = reader.text("config_toml", {});
  reader.refuse_unknown();
  return trainer;
}

ordered_json part_json(const SavedPart& part) {
  return {{"tensor", part.tensor},    {"state", part.state}, {"dtype", "f32"},    {"shape", {part.rows, part.cols}},
          {"begin", part.begin},      {"count", part.count}, {"file", part.file}, {"offset", part.offset},
          {"checksum", part.checksum}};
}

SavedPart parse_part(const nlohmann::json& json, const std::string& where) {
  JsonReader reader(json, where);
  SavedPart part;
  part.tensor = reader.text("tensor", {});
  part.state = reader.text("state", {});
  reader.choice("dtype", {}, {"f32"});
  const nlohmann::json& shape = reader.at("shape");
  const bool sound =
      shape.is_array() && shape.size() == 2 && shape[0].is_number_unsigned() && shape[1].is_number_unsigned();
  if (!sound) throw_bad_input("{}: the shape of {} is {}, not [rows, cols]", where, part.tensor, shape.dump());
  part.rows = shape[0].get<int64_t>();
  part.cols = shape[1].get<int64_t>();
  part.begin = reader.integer("begin", {}, 0, kLargest);
  part.count = reader.integer("count", {}, 0, kLargest / 4);
  part.file = reader.text("file", {});
  part.offset = reader.integer("offset", {}, 0, kLargest);
  part.checksum = reader.text("checksum", {});
  reader.refuse_unknown();
  return part;
}

// The text before the checksum, which must be right.
std::string_view checked_text(std::string_view text, const std::string& where) {
  const size_t tail = kBeforeChecksum.size() + kChecksumDigits + kAfterChecksum.size();
  const std::string_view body = text.substr(0, text.size() < tail ? 0 : text.size() - tail);
  if (body.empty() || text.substr(body.size(), kBeforeChecksum.size()) != kBeforeChecksum ||
      !text.ends_with(kAfterChecksum))
    throw_bad_input("{} does not end with its checksum: cut off, or not a checkpoint", where);
  const std::string_view written = text.substr(body.size() + kBeforeChecksum.size(), kChecksumDigits);
  const std::string found = checksum_hex(checksum_of(std::as_bytes(std::span(body.data(), body.size()))));
  if (written != found) throw_bad_input("{} is damaged: its checksum is {}, not {}", where, found, written);
  return body;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  ordered_json json = {{"format", kFormat}, {"version", kVersion}, {"trainer", trainer_json(manifest.trainer)}};
  json["model"] = to_config_json(manifest.model);
  json["files"] = ordered_json::array();
  for (const SavedFile& file : manifest.files) json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  json["tensors"] = ordered_json::array();
  for (const SavedPart& part : manifest.parts) json["tensors"].push_back(part_json(part));
  std::string text = json.dump(1, ' ', false, ordered_json::error_handler_t::replace);
  text.resize(text.size() - 2);  // the last line, "}"
  const std::string checksum = checksum_hex(checksum_of(std::as_bytes(std::span(text.data(), text.size()))));
  return text.append(kBeforeChecksum).append(checksum).append(kAfterChecksum);
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const std::string body = std::string(checked_text(text, where)) + "\n}";
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_discarded()) throw_bad_input("{} is not valid JSON", where);
  JsonReader reader(json, where);
  reader.choice("format", {}, {kFormat});
  const int64_t version = reader.integer("version", {}, 1, kLargest);
  if (version != kVersion)
    throw_bad_input("{} has version {}; this program reads version {}", where, version, kVersion);
  Manifest manifest;
  manifest.trainer = parse_trainer(reader.at("trainer"), where + " trainer");
  manifest.model = parse_model_spec(reader.at("model"), where + " model");
  for (const nlohmann::json& entry : reader.at("files")) {
    JsonReader file(entry, where + " files");
    manifest.files.push_back({file.text("name", {}), file.integer("bytes", {}, 0, kLargest)});
    file.refuse_unknown();
  }
  for (const nlohmann::json& entry : reader.at("tensors"))
    manifest.parts.push_back(parse_part(entry, where + " tensors"));
  reader.refuse_unknown();
  return manifest;
}

}  // namespace strata

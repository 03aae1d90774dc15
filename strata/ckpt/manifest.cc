// SPDX-License-Identifier: Apache-2.0
#include "strata/ckpt/manifest.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <tuple>

#include "strata/base/checksum.h"
#include "strata/base/error.h"
#include "strata/spec/json_reader.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFormat = "strata checkpoint";
constexpr int64_t kVersion = 2;
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
constexpr int64_t kLargestSize = int64_t{1} << 30;  // of a side of a tensor, so that its bytes fit 63 bits
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
  const Rectangle& rectangle = part.part.rectangle;
  return {{"tensor", part.tensor},
          {"state", part.state},
          {"dtype", "f32"},
          {"shape", {part.rows, part.cols}},
          {"rectangle", {rectangle.row, rectangle.rows, rectangle.col, rectangle.cols}},
          {"begin", part.part.begin},
          {"count", part.part.count},
          {"file", part.file},
          {"offset", part.offset},
          {"checksum", part.checksum}};
}

// One size for every name.
std::vector<int64_t> parse_sizes(JsonReader& reader, const char* key, const std::vector<std::string_view>& names,
                                 const std::string& where) {
  const nlohmann::json& json = reader.at(key);
  const auto sound = [](const nlohmann::json& size) {
    return size.is_number_unsigned() && size.get<uint64_t>() <= uint64_t{kLargestSize};
  };
  if (!json.is_array() || json.size() != names.size() || !std::ranges::all_of(json, sound))
    throw_bad_input("{}: the {} is {}, not [{}] up to {}", where, key, json.dump(), fmt::join(names, ", "),
                    kLargestSize);
  return json.get<std::vector<int64_t>>();
}

bool contains(const SavedPart& saved) {
  const Rectangle& rectangle = saved.part.rectangle;
  return rectangle.row + rectangle.rows <= saved.rows && rectangle.col + rectangle.cols <= saved.cols &&
         saved.part.count <= rectangle.num_elements() &&
         saved.part.begin <= rectangle.num_elements() - saved.part.count;
}

// Version 1 was written by one rank: its parts are of whole tensors.
SavedPart parse_part(const nlohmann::json& json, int64_t version, const std::string& where) {
  JsonReader reader(json, where);
  SavedPart part;
  part.tensor = reader.text("tensor", {});
  part.state = reader.text("state", {});
  const std::string place = fmt::format("{}: {} of {}", where, part.state, part.tensor);
  reader.choice("dtype", {}, {"f32"});
  const std::vector<int64_t> shape = parse_sizes(reader, "shape", {"rows", "cols"}, place);
  part.rows = shape[0];
  part.cols = shape[1];
  std::vector<int64_t> sides = {0, part.rows, 0, part.cols};
  if (version > 1) sides = parse_sizes(reader, "rectangle", {"row", "rows", "col", "cols"}, place);
  part.part.rectangle = {sides[0], sides[1], sides[2], sides[3]};
  part.part.begin = reader.integer("begin", {}, 0, kLargest);
  part.part.count = reader.integer("count", {}, 0, kLargest / 4);
  if (!contains(part))
    throw_bad_input("{}: {} elements from {} of rectangle [{}] are not inside {} x {}", place, part.part.count,
                    part.part.begin, fmt::join(sides, ", "), part.rows, part.cols);
  part.file = reader.text("file", {});
  part.offset = reader.integer("offset", {}, 0, kLargest);
  part.checksum = reader.text("checksum", {});
  reader.refuse_unknown();
  return part;
}

void add_part_list(ordered_json& json, const PartList& list) {
  json["files"] = ordered_json::array();
  for (const SavedFile& file : list.files) json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  json["tensors"] = ordered_json::array();
  for (const SavedPart& part : list.parts) json["tensors"].push_back(part_json(part));
}

PartList read_part_list(JsonReader& reader, int64_t version, const std::string& where) {
  PartList list;
  for (const nlohmann::json& entry : reader.at("files")) {
    JsonReader file(entry, where + " files");
    list.files.push_back({file.text("name", {}), file.integer("bytes", {}, 0, kLargest)});
    file.refuse_unknown();
  }
  for (const nlohmann::json& entry : reader.at("tensors"))
    list.parts.push_back(parse_part(entry, version, where + " tensors"));
  return list;
}

std::string text_with_checksum(const ordered_json& json) {
  std::string text = json.dump(1, ' ', false, ordered_json::error_handler_t::replace);
  text.resize(text.size() - 2);  // the last line, "}"
  const std::string checksum = checksum_hex(checksum_of(std::as_bytes(std::span(text.data(), text.size()))));
  return text.append(kBeforeChecksum).append(checksum).append(kAfterChecksum);
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

nlohmann::json parse_checked(const std::string& text, const std::string& where) {
  const std::string body = std::string(checked_text(text, where)) + "\n}";
  nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_discarded()) throw_bad_input("{} is not valid JSON", where);
  return json;
}

bool overlap(const Rectangle& a, const Rectangle& b) {
  return std::max(a.row, b.row) < std::min(a.row + a.rows, b.row + b.rows) &&
         std::max(a.col, b.col) < std::min(a.col + a.cols, b.col + b.cols);
}

}  // namespace

std::string coverage_fault(const std::vector<const SavedPart*>& parts) {
  static constexpr const char* kTwice = "elements that are there twice";
  std::vector<const SavedPart*> sorted = parts;
  const auto key = [](const SavedPart* saved) {
    const Rectangle& rectangle = saved->part.rectangle;
    return std::tuple(rectangle.row, rectangle.col, rectangle.rows, rectangle.cols, saved->part.begin);
  };
  std::ranges::sort(sorted, {}, key);
  int64_t covered = 0;
  std::vector<Rectangle> rectangles;
  for (size_t index = 0; index < sorted.size(); ++index) {
    const TensorPart& part = sorted[index]->part;
    covered += part.count;
    if (!rectangles.empty() && rectangles.back() == part.rectangle) {
      const TensorPart& before = sorted[index - 1]->part;
      if (part.begin < before.begin + before.count) return kTwice;
      continue;
    }
    for (const Rectangle& other : rectangles)
      if (overlap(other, part.rectangle)) return kTwice;
    rectangles.push_back(part.rectangle);
  }
  const int64_t wanted = parts.empty() ? 0 : parts.front()->rows * parts.front()->cols;
  return covered == wanted ? "" : fmt::format("{} of {} elements", wanted - covered, wanted);
}

std::string part_list_text(const PartList& list) {
  ordered_json json;
  add_part_list(json, list);
  return text_with_checksum(json);
}

PartList parse_part_list(const std::string& text, const std::string& where) {
  const nlohmann::json json = parse_checked(text, where);
  JsonReader reader(json, where);
  PartList list = read_part_list(reader, kVersion, where);
  reader.refuse_unknown();
  return list;
}

std::string manifest_text(const Manifest& manifest) {
  ordered_json json = {{"format", kFormat}, {"version", kVersion}, {"trainer", trainer_json(manifest.trainer)}};
  json["model"] = to_config_json(manifest.model);
  add_part_list(json, manifest.saved);
  return text_with_checksum(json);
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const nlohmann::json json = parse_checked(text, where);
  JsonReader reader(json, where);
  reader.choice("format", {}, {kFormat});
  const int64_t version = reader.integer("version", {}, 1, kLargest);
  if (version > kVersion)
    throw_bad_input("{} has version {}; this program reads versions up to {}", where, version, kVersion);
  Manifest manifest;
  manifest.trainer = parse_trainer(reader.at("trainer"), where + " trainer");
  manifest.model = parse_model_spec(reader.at("model"), where + " model");
  manifest.saved = read_part_list(reader, version, where);
  reader.refuse_unknown();
  return manifest;
}

}  // namespace strata

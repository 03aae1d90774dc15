// SPDX-License-Identifier: Apache-2.0
#include "strata/hf/model_folder.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "strata/base/differences.h"
#include "strata/base/error.h"
#include "strata/base/units.h"
#include "strata/hf/hub_tensors.h"
#include "strata/hf/safetensors.h"
#include "strata/spec/json_reader.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kWeights = "model.safetensors";
constexpr int64_t kPieceElements = int64_t{1} << 18;
constexpr const char* kIndex = "model.safetensors.index.json";

// transformers 5 reads "dtype", 4 reads "torch_dtype".
json folder_config(const ModelSpec& model, DType dtype) {
  json config = to_config_json(model);
  config["dtype"] = config["torch_dtype"] = dtype == DType::kF32 ? "float32" : "bfloat16";
  return config;
}

json generation_config(const ModelSpec& model) {
  const json config = to_config_json(model);
  return {{"_from_model_config", true},
          {"bos_token_id", config.at("bos_token_id")},
          {"eos_token_id", config.at("eos_token_id")}};
}

// In pieces: the whole of another type or order would be a second copy of the tensor.
void write_part(SafetensorsWriter& writer, const HubTensor& tensor, const TensorView& values, bool transposed,
                DType dtype) {
  if (!transposed && values.dtype == dtype && values.contiguous())
    return writer.write(tensor.name,
                        {values.data, static_cast<size_t>(values.num_elements() * dtype_bytes(values.dtype))});
  const int64_t lines = transposed ? values.cols : values.rows, line = transposed ? values.rows : values.cols;
  const int64_t piece = std::max<int64_t>(1, kPieceElements / line);
  for (int64_t begin = 0; begin < lines; begin += piece) {
    const int64_t count = std::min(piece, lines - begin);
    const TensorView some = transposed ? values.slice_cols(begin, count) : values.slice_rows(begin, count);
    writer.append(tensor.name, encode_part(some, transposed, dtype));
  }
}

void write_weights(const fs::path& path, const ModelFolder& contents) {
  const std::vector<HubTensor> tensors = hub_tensors(contents.layers);
  std::vector<SafetensorsEntry> entries;
  for (const HubTensor& tensor : tensors) entries.push_back({tensor.name, contents.dtype, tensor.shape});
  SafetensorsWriter writer(path, entries);
  TensorView values;
  for (const HubTensor& tensor : tensors) {
    const ParameterDecl& parameter = contents.layers[tensor.layer].parameters[tensor.parameter];
    if (tensor.part == 0) values = contents.source(tensor.layer, tensor.parameter);
    STRATA_CHECK(values.rows == parameter.rows && values.cols == parameter.cols, "{} is {} x {}, not {} x {}",
                 parameter.name, values.rows, values.cols, parameter.rows, parameter.cols);
    const HubPart& part = parameter.hub[tensor.part];
    write_part(writer, tensor, part_of(values, parameter, part), part.transposed, contents.dtype);
  }
  writer.commit();
}

std::set<std::string> weight_files(const fs::path& folder) {
  if (!fs::exists(folder / kIndex)) return {kWeights};
  const fs::path path = folder / kIndex;
  const json index = read_json_file(path.string());
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) throw_bad_input("{} has no weight_map", path.string());
  std::set<std::string> files;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>())
      throw_bad_input("{}: {} is in {}, which is not the name of a file beside it", path.string(), name, file.dump());
    files.insert(file.get<std::string>());
  }
  return files;
}

// All tensors of a folder by name, without copies.
class WeightFiles {
 public:
  explicit WeightFiles(const fs::path& folder) {
    for (const std::string& name : weight_files(folder)) files_.emplace_back(folder / name);
    for (const SafetensorsFile& file : files_)
      for (const auto& [name, tensor] : file.tensors())
        if (!tensors_.emplace(name, &tensor).second)
          throw_bad_input("{} holds {}, which another file of the folder holds too", file.path().string(), name);
  }

  const std::map<std::string, const SafetensorsTensor*>& tensors() const { return tensors_; }

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const SafetensorsTensor*> tensors_;
};

bool is_passed_over(const std::string& name, const ModelSpec& model) {
  for (const char* buffer : {"*.attn.bias", "*.attn.masked_bias", "*.rotary_emb.inv_freq"})
    if (glob_match(buffer, name)) return true;
  return model.tied_head && name == "lm_head.weight";
}

// A model without a head is saved without this prefix.
std::string without_prefix(const std::string& name, const ModelSpec& model) {
  const std::string prefix = model.family == "gpt2" ? "transformer." : "model.";
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

std::string difference_of(const HubTensor& wanted, const SafetensorsTensor& stored) {
  if (stored.shape != wanted.shape)
    return fmt::format("{} ([{}], not [{}])", wanted.name, fmt::join(stored.shape, ", "),
                       fmt::join(wanted.shape, ", "));
  if (!can_decode(stored.stored_dtype))
    return fmt::format("{} ({}, not F32, BF16 or F16)", wanted.name, stored.stored_dtype);
  return "";
}

// The stored tensor of each wanted one.
std::vector<const SafetensorsTensor*> match_tensors(const WeightFiles& files, const std::vector<HubTensor>& wanted,
                                                    const ModelSpec& model, const fs::path& folder) {
  Differences differences;
  std::vector<const SafetensorsTensor*> matched;
  std::set<std::string> used;
  for (const HubTensor& tensor : wanted) {
    auto stored = files.tensors().find(tensor.name);
    if (stored == files.tensors().end()) stored = files.tensors().find(without_prefix(tensor.name, model));
    if (stored == files.tensors().end()) {
      differences.missing.push_back(tensor.name);
      continue;
    }
    used.insert(stored->first);
    matched.push_back(stored->second);
    const std::string difference = difference_of(tensor, *stored->second);
    if (!difference.empty()) differences.different.push_back(difference);
  }
  for (const auto& [name, tensor] : files.tensors())
    if (!used.contains(name) && !is_passed_over(name, model)) differences.unexpected.push_back(name);
  if (!differences.none())
    throw_bad_input("the weights in {} are not those of the model: {}", folder.string(), differences.text());
  return matched;
}

}  // namespace

void write_model_folder(const fs::path& path, const ModelFolder& contents, ExistingTarget existing) {
  AtomicFolder folder(path, existing);
  write_file_atomically(folder.folder() / "config.json", folder_config(contents.model, contents.dtype).dump(2) + "\n");
  write_file_atomically(folder.folder() / "generation_config.json", generation_config(contents.model).dump(2) + "\n");
  if (contents.add_files) contents.add_files(folder.folder());
  write_weights(folder.folder() / kWeights, contents);
  folder.commit();
}

void read_model_weights(const fs::path& folder, const ModelSpec& model, const std::vector<LayerDecl>& layers,
                        const ParameterSink& sink, const ParameterFilter& wanted) {
  const WeightFiles files(folder);
  const std::vector<HubTensor> tensors = hub_tensors(layers);
  const std::vector<const SafetensorsTensor*> stored = match_tensors(files, tensors, model, folder);
  std::vector<float> values;
  for (size_t index = 0; index < tensors.size(); ++index) {
    const HubTensor& tensor = tensors[index];
    if (wanted && !wanted(tensor.layer, tensor.parameter)) continue;
    const ParameterDecl& parameter = layers[tensor.layer].parameters[tensor.parameter];
    if (tensor.part == 0) values.resize(static_cast<size_t>(parameter.num_elements()));
    const TensorView view(values.data(), DType::kF32, parameter.rows, parameter.cols);
    const HubPart& part = parameter.hub[tensor.part];
    decode_part(stored[index]->bytes, stored[index]->stored_dtype, part.transposed, part_of(view, parameter, part));
    if (tensor.part + 1 == static_cast<int>(parameter.hub.size())) sink(tensor.layer, tensor.parameter, view);
  }
}

}  // namespace strata

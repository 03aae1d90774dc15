// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "strata/base/differences.h"
#include "strata/base/error.h"
#include "strata/ckpt/checkpoint.h"
#include "strata/tensor/tensor.h"

namespace strata {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 20;

using Key = std::pair<std::string_view, std::string_view>;  // tensor, state
using Parts = std::map<Key, std::vector<const SavedPart*>>;

std::string name_of(const Key& key) {
  return key.second == kParametersState ? std::string(key.first) : fmt::format("{} of {}", key.second, key.first);
}

void compare_parts(const ParameterDecl& wanted, const Key& key, const std::vector<const SavedPart*>& parts,
                   Differences& differences) {
  for (const SavedPart* part : parts) {
    if (part->rows == wanted.rows && part->cols == wanted.cols) continue;
    differences.different.push_back(fmt::format("{} ({} x {} in the checkpoint, {} x {} in the run)", name_of(key),
                                                part->rows, part->cols, wanted.rows, wanted.cols));
    return;
  }
  const std::string fault = coverage_fault(parts);
  if (!fault.empty()) differences.missing.push_back(fmt::format("{} of {}", fault, name_of(key)));
}

// The optimizer states that a run keeps of a trained tensor besides the parameter.
std::vector<std::string_view> kept_states(const StatesInMemory& states) {
  std::vector<std::string_view> names = optimizer_states(states.input.optimizer, states.input.precision);
  std::erase(names, "master");
  if (states.set.find("step") == nullptr) names.clear();
  return names;
}

// Of the whole model, so that all ranks say the same. States of what is frozen now are let lie.
void compare_tensors(const StatesInMemory& states, const Parts& parts, Differences& differences) {
  const bool training = states.set.find("step") != nullptr;
  std::set<Key> expected;
  std::set<std::string_view> frozen;
  const auto expect = [&](const ParameterDecl& parameter, std::string_view state) {
    const Key key(parameter.name, state);
    if (!expected.insert(key).second) return;  // a tied table comes twice
    const auto found = parts.find(key);
    if (found == parts.end())
      differences.missing.push_back(name_of(key));
    else
      compare_parts(parameter, key, found->second, differences);
  };
  for (const LayerDecl& layer : states.layers)
    for (const ParameterDecl& parameter : layer.parameters) {
      expect(parameter, kParametersState);
      if (parameter.frozen) frozen.insert(parameter.name);
      for (std::string_view state : kept_states(states))
        if (!parameter.frozen) expect(parameter, state);
    }
  for (const auto& [key, unused] : parts) {
    const bool state_let_lie = key.second != kParametersState && (!training || frozen.contains(key.first));
    if (!expected.contains(key) && !state_let_lie) differences.unexpected.push_back(name_of(key));
  }
}

// Moments that start from zero in the middle of a run would need an own count of steps, and be another training than
// that of any run.
void refuse_thawed_tensors(const CheckpointInfo& checkpoint, const StatesInMemory& states, const Parts& parts) {
  if (kept_states(states).empty()) return;
  std::set<std::string_view> with_states;
  for (const auto& [key, unused] : parts)
    if (key.second != kParametersState) with_states.insert(key.first);
  std::vector<std::string> thawed;
  for (const LayerDecl& layer : states.layers)
    for (size_t index = 0; index < layer.parameters.size(); ++index) {
      const ParameterDecl& parameter = layer.parameters[index];
      const bool known = parts.contains({parameter.name, kParametersState});
      if (static_cast<int>(index) != layer.tied_parameter && known && !parameter.frozen &&
          !with_states.contains(parameter.name))
        thawed.push_back(parameter.name);
    }
  if (thawed.empty() || with_states.empty()) return;  // none at all: another optimizer
  throw_bad_input(
      "checkpoint {} was saved while {} was frozen and has no optimizer states of {}: keep model.frozen as it was, or "
      "start a new run with the trained model as model.weights",
      checkpoint.folder, thawed.front(), thawed.size() == 1 ? "it" : fmt::format("it and {} more", thawed.size() - 1));
}

// Same shapes may still be other maths (the number of heads). Dropout, initialisation and special tokens may change.
void compare_models(const ModelSpec& saved, const ModelSpec& run, Differences& differences) {
  static const std::set<std::string> free = {"attn_pdrop",        "resid_pdrop",  "embd_pdrop",  "attention_dropout",
                                             "initializer_range", "bos_token_id", "eos_token_id"};
  const nlohmann::json before = to_config_json(saved);
  const nlohmann::json now = to_config_json(run);
  for (const auto& [key, value] : now.items())
    if (!free.contains(key) && before.value(key, nlohmann::json()) != value)
      differences.different.push_back(fmt::format("{} ({} in the checkpoint, {} in the run)", key,
                                                  before.value(key, nlohmann::json()).dump(), value.dump()));
}

struct Read {
  const SavedPart* from = nullptr;
  const StatePart* to = nullptr;
};

// What of the files the rank needs, by file.
std::map<std::string_view, std::vector<Read>> list_reads(const std::vector<StatePart>& wanted, const Parts& parts,
                                                         const std::vector<LayerDecl>& layers) {
  std::map<std::string_view, std::vector<Read>> reads;
  for (const StatePart& to : wanted)
    for (const SavedPart* from : parts.at({declaration_of(to, layers).name, to.state}))
      if (!common_runs(to.part, from->part).empty()) reads[from->file].push_back({from, &to});
  return reads;
}

void read_common(const DiskFile& file, const Read& read, std::vector<float>& piece) {
  for (const CommonRun& run : common_runs(read.to->part, read.from->part))
    for (int64_t done = 0; done < run.count; done += kPieceElements) {
      const std::span<float> values(piece.data(), static_cast<size_t>(std::min(kPieceElements, run.count - done)));
      file.read(read.from->offset + 4 * (run.second + done), std::as_writable_bytes(values));
      store_values(*read.to, run.first + done, values);
    }
}

}  // namespace

TrainerState read_checkpoint(const CheckpointInfo& checkpoint, const StatesInMemory& states) {
  Parts parts;
  for (const SavedPart& part : checkpoint.parts) parts[{part.tensor, part.state}].push_back(&part);
  refuse_thawed_tensors(checkpoint, states, parts);
  Differences differences;
  compare_models(checkpoint.model, states.input.model, differences);
  compare_tensors(states, parts, differences);
  if (!differences.none())
    throw_bad_input("checkpoint {} is of another model or optimizer: {}", checkpoint.folder, differences.text());
  const std::vector<StatePart> wanted =
      states.set.find("step") != nullptr ? list_state_parts(states) : list_parameter_parts(states);
  std::vector<float> piece(kPieceElements);
  for (const auto& [name, reads] : list_reads(wanted, parts, states.layers)) {
    const DiskFile file = DiskFile::open(std::filesystem::path(checkpoint.folder) / name);
    for (const Read& read : reads) read_common(file, read, piece);
  }
  return checkpoint.trainer;
}

}  // namespace strata

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

// One state of one tensor that the run needs, and where: as f32, rounded to bf16, or both.
struct Wanted {
  std::string tensor;
  std::string state;
  int64_t rows = 0;
  int64_t cols = 0;
  float* values = nullptr;
  BF16* rounded = nullptr;
};

class WantedList {
 public:
  explicit WantedList(const StatesInMemory& states)
      : states_(states), names_(optimizer_states(states.input.optimizer, states.input.precision)) {
    for (size_t chunk = 0; chunk < states.set.chunks.size(); ++chunk) {
      STRATA_CHECK(states.set.chunks[chunk].num_shards == 1, "chunk {} is shared", states.set.chunks[chunk].name);
      for (const ChunkTensor& tensor : states.set.chunks[chunk].tensors) add(chunk, tensor);
    }
  }

  const std::vector<Wanted>& list() const { return list_; }

 private:
  void add(size_t chunk, const ChunkTensor& tensor) {
    const std::string& name = states_.layers[tensor.layer].parameters[tensor.parameter].name;
    const std::vector<int>& bookings = states_.set.state_booking[chunk];
    Wanted parameters{name, kParametersState, tensor.rows, tensor.cols};
    for (size_t state = 0; state < bookings.size(); ++state) {
      float* const values = address<float>(bookings[state], tensor);
      if (names_[state] == "master")
        parameters.values = values;
      else
        list_.push_back({name, std::string(names_[state]), tensor.rows, tensor.cols, values});
    }
    const int booking = states_.set.parameter_booking[chunk];
    if (states_.input.precision == Precision::kBF16)
      parameters.rounded = address<BF16>(booking, tensor);
    else
      parameters.values = address<float>(booking, tensor);
    list_.push_back(parameters);
  }

  template <typename T>
  T* address(int booking, const ChunkTensor& tensor) const {
    return reinterpret_cast<T*>(states_.arena + states_.set.programs.front().bookings[booking].offset) + tensor.offset;
  }

  const StatesInMemory& states_;
  std::vector<std::string_view> names_;
  std::vector<Wanted> list_;
};

using Key = std::pair<std::string, std::string>;  // tensor, state
using Parts = std::map<Key, std::vector<const SavedPart*>>;

std::string name_of(const Key& key) {
  return key.second == kParametersState ? key.first : fmt::format("{} of {}", key.second, key.first);
}

void compare_part_lists(const Wanted& wanted, const std::vector<const SavedPart*>& parts, Differences& differences) {
  int64_t elements = 0;
  for (const SavedPart* part : parts) {
    elements += part->count;
    if (part->rows == wanted.rows && part->cols == wanted.cols &&
        part->begin + part->count <= wanted.rows * wanted.cols)
      continue;
    differences.different.push_back(fmt::format("{} ({} x {} in the checkpoint, {} x {} in the run)",
                                                name_of({wanted.tensor, wanted.state}), part->rows, part->cols,
                                                wanted.rows, wanted.cols));
    return;
  }
  if (elements != wanted.rows * wanted.cols)
    differences.missing.push_back(fmt::format("{} of {} elements of {}", wanted.rows * wanted.cols - elements,
                                              wanted.rows * wanted.cols, name_of({wanted.tensor, wanted.state})));
}

void compare_tensors(const std::vector<Wanted>& list, const Parts& parts, bool training, Differences& differences) {
  std::set<Key> expected;
  for (const Wanted& wanted : list) {
    const Key key(wanted.tensor, wanted.state);
    expected.insert(key);
    const auto found = parts.find(key);
    if (found == parts.end())
      differences.missing.push_back(name_of(key));
    else
      compare_part_lists(wanted, found->second, differences);
  }
  for (const auto& [key, unused] : parts)
    if (!expected.contains(key) && (training || key.second == kParametersState))
      differences.unexpected.push_back(name_of(key));
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

void read_part(const DiskFile& file, const SavedPart& part, const Wanted& wanted, std::vector<float>& piece) {
  for (int64_t done = 0; done < part.count; done += kPieceElements) {
    const int64_t count = std::min(kPieceElements, part.count - done);
    const int64_t begin = part.begin + done;
    float* const values = wanted.values != nullptr ? wanted.values + begin : piece.data();
    file.read(part.offset + 4 * done, std::as_writable_bytes(std::span(values, static_cast<size_t>(count))));
    if (wanted.rounded != nullptr) std::transform(values, values + count, wanted.rounded + begin, to_bf16);
  }
}

}  // namespace

TrainerState read_checkpoint(const CheckpointInfo& checkpoint, const StatesInMemory& states) {
  const WantedList wanted(states);
  Parts parts;
  for (const SavedPart& part : checkpoint.parts) parts[{part.tensor, part.state}].push_back(&part);
  Differences differences;
  compare_models(checkpoint.model, states.input.model, differences);
  compare_tensors(wanted.list(), parts, states.set.find("step") != nullptr, differences);
  if (!differences.none())
    throw_bad_input("checkpoint {} is of another model or optimizer: {}", checkpoint.folder, differences.text());
  std::map<std::string, DiskFile> files;
  for (const SavedPart& part : checkpoint.parts)
    if (!files.contains(part.file))
      files.emplace(part.file, DiskFile::open(std::filesystem::path(checkpoint.folder) / part.file));
  std::vector<float> piece(kPieceElements);
  for (const Wanted& one : wanted.list())
    for (const SavedPart* part : parts.at({one.tensor, one.state})) read_part(files.at(part->file), *part, one, piece);
  return checkpoint.trainer;
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// All ranks of a tiny run in one process, one after the other: what they save under one plan and what they load under
// another. Included by *_test.cc only.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/checksum.h"
#include "strata/ckpt/testing.h"

namespace strata {

// tp x pp x dp x cp ranks; the last stages take the layers that do not divide.
struct WorldLayout {
  int64_t tp = 1, pp = 1, dp = 1;
  int zero = 0;
  std::vector<std::string> frozen = {};  // patterns
  int64_t cp = 1;
  std::string text() const {
    return fmt::format("tp{} pp{} dp{} zero{} cp{} frozen {}", tp, pp, dp, zero, cp, frozen.size());
  }
};

inline CompileInput world_input(const ModelSpec& model, const WorldLayout& layout, Precision precision) {
  CompileInput input = compile_input(model, precision);
  input.seq = 8;
  input.frozen = layout.frozen;
  input.plan.num_ranks = layout.tp * layout.pp * layout.dp * layout.cp;
  const int64_t layers = num_layers(model);
  input.plan.stage_layers.clear();
  for (int64_t stage = 0; stage < layout.pp; ++stage)
    input.plan.stage_layers.push_back(layers * (stage + 1) / layout.pp - layers * stage / layout.pp);
  for (LayerPlan& layer : input.plan.layers) {
    layer.tp = layout.tp;
    layer.dp = layout.dp;
    layer.cp = layout.cp;
    layer.zero = layout.zero;
  }
  return input;
}

// Differs from element to element, and in bf16 from its rounding.
inline float value_of(const std::string& tensor, std::string_view state, int64_t element) {
  const std::string name = fmt::format("{}/{}", tensor, state);
  const uint64_t key = checksum_of(std::as_bytes(std::span(name.data(), name.size())));
  return uniform_from(philox(key, static_cast<uint64_t>(element), 0)[0]) - 0.5f;
}

// body(part, its element, element of the whole tensor) for everything that the rank has.
template <typename Body>
void for_each_element(const TinyRun& rank, Body&& body) {
  for (const StatePart& part : list_state_parts(rank.states())) {
    const ParameterDecl& parameter = declaration_of(part, rank.layers);
    for (const CommonRun& run : common_runs(part.part, whole_tensor(parameter.rows, parameter.cols)))
      for (int64_t index = 0; index < run.count; ++index) body(part, run.first + index, run.second + index);
  }
}

class World {
 public:
  World(const ModelSpec& model, const WorldLayout& layout, Precision precision) {
    CompileInput input = world_input(model, layout, precision);
    for (; input.rank < input.plan.num_ranks; ++input.rank) ranks_.push_back(std::make_unique<TinyRun>(input));
  }

  size_t size() const { return ranks_.size(); }
  TinyRun& rank(size_t index) { return *ranks_[index]; }

  void fill() {
    for (const auto& rank : ranks_)
      for_each_element(*rank, [&](const StatePart& part, int64_t at, int64_t element) {
        const float value = value_of(declaration_of(part, rank->layers).name, part.state, element);
        store_values(part, at, std::span(&value, 1));
      });
  }

  // All bytes set: NaN in both precisions.
  void forget() {
    for (const auto& rank : ranks_)
      std::memset(rank->arena.base(), 0xff, static_cast<size_t>(rank->arena.size_bytes()));
  }

  // The three steps, as if there were barriers between.
  void write(const std::string& run_folder, int64_t step) {
    TrainerState trainer;
    trainer.step = step;
    NewCheckpoint checkpoint(run_folder, trainer, ranks_[0]->states());
    for (const auto& rank : ranks_)
      write_rank_part(run_folder, step, rank->states(), [&](DiskFile& file) { rank->save(file); });
    checkpoint.commit();
  }

  void read(const CheckpointInfo& checkpoint) {
    for (const auto& rank : ranks_) read_checkpoint(checkpoint, rank->states());
  }

  // Elements that are not what fill() makes.
  int64_t count_wrong() const {
    int64_t wrong = 0;
    for (const auto& rank : ranks_)
      for_each_element(*rank, [&](const StatePart& part, int64_t at, int64_t element) {
        const float value = value_of(declaration_of(part, rank->layers).name, part.state, element);
        if (part.values != nullptr && part.values[at] != value) ++wrong;
        if (part.rounded != nullptr && part.rounded[at].bits != to_bf16(value).bits) ++wrong;
      });
    return wrong;
  }

 private:
  std::vector<std::unique_ptr<TinyRun>> ranks_;
};

}  // namespace strata

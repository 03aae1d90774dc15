// SPDX-License-Identifier: Apache-2.0
// Initial weights belong to the seed, the tensor and the place in it: the same bits on every rank of every plan.
#include "strata/train/initialize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "strata/base/checksum.h"
#include "strata/base/random.h"
#include "strata/device/arena.h"
#include "strata/program/testing.h"

namespace strata {
namespace {

constexpr uint64_t kSeed = 7;

// What every element must be.
std::map<std::string, std::vector<float>> expected_weights(const ModelSpec& model) {
  std::map<std::string, std::vector<float>> weights;
  for (const LayerDecl& layer : declare_layers(model))
    for (const ParameterDecl& parameter : layer.parameters) {
      const std::string& name = parameter.name;
      const uint64_t key = mix_key(kSeed, checksum_of(std::as_bytes(std::span(name.data(), name.size()))));
      float std = model.init_std;
      if (parameter.init == Init::kNormalResidual) std *= 1.0f / std::sqrt(2.0f * static_cast<float>(model.num_blocks));
      for (int64_t index = 0; index < parameter.num_elements(); ++index) {
        const PhiloxBlock words = philox(key, static_cast<uint64_t>(index / 4), 0);
        const size_t pair = index % 4 < 2 ? 0 : 2;
        float value = std * normal_from(words[pair], words[pair + 1])[static_cast<size_t>(index % 2)];
        if (parameter.init == Init::kZeros || parameter.init == Init::kOnes)
          value = parameter.init == Init::kOnes ? 1.0f : 0.0f;
        if (static_cast<int>(&parameter - layer.parameters.data()) != layer.tied_parameter)
          weights[name].push_back(value);
      }
    }
  return weights;
}

class Rank {
 public:
  explicit Rank(const CompileInput& compile_input)
      : input(compile_input),
        layers(declare_layers(input.model)),
        set(compile(input, {ProgramKind::kStep})),
        arena(set.arena_bytes[static_cast<size_t>(Tier::kDevice)]) {
    std::memset(arena.base(), 0xff, static_cast<size_t>(arena.size_bytes()));  // NaN: what is not filled shows
  }
  StatesInMemory states() const { return {input, layers, set, arena.base()}; }

  const CompileInput input;
  const std::vector<LayerDecl> layers;
  const ProgramSet set;
  Arena arena;
};

void expect_initial_values(const Rank& rank, const std::map<std::string, std::vector<float>>& weights) {
  for (const StatePart& part : list_parameter_parts(rank.states())) {
    const ParameterDecl& parameter = declaration_of(part, rank.layers);
    for (const CommonRun& run : common_runs(part.part, whole_tensor(parameter.rows, parameter.cols)))
      for (int64_t index = 0; index < run.count; ++index) {
        const float wanted = weights.at(parameter.name)[static_cast<size_t>(run.second + index)];
        ASSERT_TRUE(part.values == nullptr || part.values[run.first + index] == wanted) << parameter.name;
        ASSERT_TRUE(part.rounded == nullptr || part.rounded[run.first + index].bits == to_bf16(wanted).bits)
            << parameter.name;
      }
  }
}

TEST(Initialize, DoesNotDependOnThePlan) {
  Team team(2);
  for (const ModelSpec& model : {tiny_gpt2(2, true), tiny_llama(2)}) {
    const std::map<std::string, std::vector<float>> weights = expected_weights(model);
    for (const Degrees& degrees : {Degrees{1, 1, 1, 0}, Degrees{2, 1, 2, 0}, Degrees{1, 2, 3, 1}, Degrees{2, 3, 1, 2},
                                   Degrees{2, 1, 3, 3}, Degrees{1, 1, 5, 3}, Degrees{2, 2, 1, 3, 2}})
      for (Precision precision : {Precision::kF32, Precision::kBF16}) {
        CompileInput input = tiny_input(model, degrees, 1);
        input.precision = precision;
        for (input.rank = 0; input.rank < input.plan.num_ranks; ++input.rank) {
          const Rank rank(input);
          initialize_parameters(rank.states(), kSeed, team);
          expect_initial_values(rank, weights);
        }
      }
  }
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/initialize.h"

#include <cmath>

#include "strata/base/checksum.h"
#include "strata/base/random.h"

namespace strata {
namespace {

void fill(const TensorView& out, float value) {
  for (int64_t row = 0; row < out.rows; ++row) std::fill_n(out.row<float>(row), out.cols, value);
}

void fill_normal(const TensorView& out, float std, uint64_t key, Team& team) {
  auto* data = out.row<float>(0);
  const int64_t count = out.num_elements();
  team.parallel_for((count + 3) / 4, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const PhiloxBlock words = philox(key, static_cast<uint64_t>(block), 0);
      const std::array<float, 2> first = normal_from(words[0], words[1]);
      const std::array<float, 2> second = normal_from(words[2], words[3]);
      const std::array<float, 4> values = {first[0], first[1], second[0], second[1]};
      for (int64_t lane = 0; lane < 4 && 4 * block + lane < count; ++lane) data[4 * block + lane] = std * values[lane];
    }
  });
}

}  // namespace

void initialize_parameter(const ParameterDecl& parameter, const ModelSpec& model, uint64_t seed, const TensorView& out,
                          Team& team) {
  const uint64_t key =
      mix_key(seed, checksum_of(std::as_bytes(std::span(parameter.name.data(), parameter.name.size()))));
  const float residual = 1.0f / std::sqrt(2.0f * static_cast<float>(model.num_blocks));
  switch (parameter.init) {
    case Init::kZeros: return fill(out, 0.0f);
    case Init::kOnes: return fill(out, 1.0f);
    case Init::kNormal: return fill_normal(out, model.init_std, key, team);
    case Init::kNormalResidual: return fill_normal(out, model.init_std * residual, key, team);
  }
}

void initialize_parameters(const ModelSpec& model, const std::vector<LayerDecl>& layers, uint64_t seed,
                           Executor& executor, Team& team) {
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (size_t index = 0; index < layers[layer].parameters.size(); ++index)
      if (static_cast<int>(index) != layers[layer].tied_parameter)
        initialize_parameter(layers[layer].parameters[index], model, seed,
                             executor.master(static_cast<int>(layer), static_cast<int>(index)), team);
  round_parameters(layers, executor, team);
}

void round_parameters(const std::vector<LayerDecl>& layers, Executor& executor, Team& team) {
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (size_t index = 0; index < layers[layer].parameters.size(); ++index) {
      const TensorView master = executor.master(static_cast<int>(layer), static_cast<int>(index));
      const TensorView parameter = executor.parameter(static_cast<int>(layer), static_cast<int>(index));
      if (master.data != parameter.data) kernels::convert({team, {}}, master, parameter);
    }
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "strata/base/checksum.h"
#include "strata/base/random.h"

namespace strata {
namespace {

constexpr int64_t kPieceElements = 1024;  // a whole number of random blocks

// Normal values of the elements from `first` on. Elements 4k to 4k + 3 share a random block.
void draw_normal(uint64_t key, float std, int64_t first, std::span<float> out) {
  const auto count = static_cast<int64_t>(out.size());
  for (int64_t block = first / 4; 4 * block < first + count; ++block) {
    const PhiloxBlock words = philox(key, static_cast<uint64_t>(block), 0);
    const std::array<float, 2> low = normal_from(words[0], words[1]);
    const std::array<float, 2> high = normal_from(words[2], words[3]);
    const std::array<float, 4> values = {low[0], low[1], high[0], high[1]};
    for (int64_t lane = 0; lane < 4; ++lane) {
      const int64_t at = 4 * block + lane - first;
      if (at >= 0 && at < count) out[static_cast<size_t>(at)] = std * values[static_cast<size_t>(lane)];
    }
  }
}

// The elements of one tensor.
struct InitialValues {
  Init init = Init::kZeros;
  float std = 0;
  uint64_t key = 0;

  void draw(int64_t first, std::span<float> out) const {
    if (init == Init::kZeros || init == Init::kOnes)
      std::ranges::fill(out, init == Init::kOnes ? 1.0f : 0.0f);
    else
      draw_normal(key, std, first, out);
  }
};

InitialValues initial_values(const ParameterDecl& parameter, const ModelSpec& model, uint64_t seed) {
  const float residual = 1.0f / std::sqrt(2.0f * static_cast<float>(model.num_blocks));
  const std::string& name = parameter.name;
  return {parameter.init, parameter.init == Init::kNormalResidual ? model.init_std * residual : model.init_std,
          mix_key(seed, checksum_of(std::as_bytes(std::span(name.data(), name.size()))))};
}

// `run`: where consecutive elements of the tensor lie in the part.
void fill_run(const StatePart& part, const CommonRun& run, const InitialValues& values) {
  std::array<float, kPieceElements> piece;
  for (int64_t done = 0; done < run.count; done += kPieceElements) {
    const std::span<float> out(piece.data(), static_cast<size_t>(std::min(kPieceElements, run.count - done)));
    values.draw(run.second + done, out);
    store_values(part, run.first + done, out);
  }
}

}  // namespace

void initialize_parameters(const StatesInMemory& states, uint64_t seed, Team& team) {
  for (const StatePart& part : list_parameter_parts(states)) {
    const ParameterDecl& parameter = declaration_of(part, states.layers);
    const InitialValues values = initial_values(parameter, states.input.model, seed);
    const std::vector<CommonRun> runs = common_runs(part.part, whole_tensor(parameter.rows, parameter.cols));
    if (runs.size() == 1) {
      const CommonRun& run = runs.front();
      team.parallel_for(run.count, kPieceElements, [&](int64_t begin, int64_t end) {
        fill_run(part, {run.first + begin, run.second + begin, end - begin}, values);
      });
      continue;
    }
    team.for_each(static_cast<int64_t>(runs.size()),
                  [&](int64_t index) { fill_run(part, runs[static_cast<size_t>(index)], values); });
  }
}

}  // namespace strata

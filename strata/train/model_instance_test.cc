// SPDX-License-Identifier: Apache-2.0
// Weights of a model folder in the memory of any rank of any plan.
#include "strata/train/model_instance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/base/testing.h"
#include "strata/ckpt/testing_world.h"
#include "strata/hf/model_folder.h"

namespace strata {
namespace {

// A folder of the values that World::fill makes.
void write_weights(const std::filesystem::path& path, const ModelSpec& model) {
  const std::vector<LayerDecl> layers = declare_layers(model);
  std::vector<float> values;
  const auto source = [&](int layer, int index) {
    const ParameterDecl& parameter = layers[layer].parameters[index];
    values.clear();
    for (int64_t element = 0; element < parameter.num_elements(); ++element)
      values.push_back(value_of(parameter.name, kParametersState, element));
    return TensorView(values.data(), DType::kF32, parameter.rows, parameter.cols);
  };
  write_model_folder(path, {model, layers, source, DType::kF32, {}}, ExistingTarget::kRefuse);
}

ModelSpec tiny_llama(int64_t kv_heads) { return llama_shaped(tiny_gpt2(), kv_heads, 128); }

// Parameters that are not the folder's.
int64_t count_wrong(const TinyRun& rank) {
  int64_t wrong = 0;
  for_each_element(rank, [&](const StatePart& part, int64_t at, int64_t element) {
    if (part.state != kParametersState) return;
    const float value = value_of(declaration_of(part, rank.layers).name, kParametersState, element);
    if (part.values != nullptr && part.values[at] != value) ++wrong;
    if (part.rounded != nullptr && part.rounded[at].bits != to_bf16(value).bits) ++wrong;
  });
  return wrong;
}

// B66: two key-value heads over two ranks too.
TEST(LoadWeights, AnyRankOfAnyPlan) {
  for (const ModelSpec& model : {tiny_gpt2(), tiny_llama(4), tiny_llama(2)}) {
    TemporaryFolder folder;
    write_weights(folder.path() / "model", model);
    for (const WorldLayout& layout : {WorldLayout{1, 1, 1, 0}, WorldLayout{2, 1, 2, 0}, WorldLayout{1, 3, 1, 1},
                                      WorldLayout{2, 2, 3, 2}, WorldLayout{1, 2, 3, 3}, WorldLayout{2, 1, 2, 3, {}, 2}})
      for (Precision precision : {Precision::kF32, Precision::kBF16}) {
        World world(model, layout, precision);
        world.forget();
        for (size_t rank = 0; rank < world.size(); ++rank) {
          load_weights(folder.path() / "model", world.rank(rank).states());
          EXPECT_EQ(count_wrong(world.rank(rank)), 0) << layout.text() << " rank " << rank;
        }
      }
  }
}

}  // namespace
}  // namespace strata

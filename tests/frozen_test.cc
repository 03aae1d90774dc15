// SPDX-License-Identifier: Apache-2.0
// Frozen tensors train as frozen: they keep every bit, and the others get the training of a run in which the frozen
// ones are put back after every step. B30, B31.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "strata/layers/freeze.h"
#include "tests/model_harness.h"

namespace strata::testing {
namespace {

// Names and bytes of a tensor in storage precision.
using Bytes = std::map<std::string, std::vector<std::byte>>;

std::span<std::byte> storage_of(ModelHarness& harness, int layer, int index) {
  const TensorView view = harness.executor().parameter(layer, index);
  return {view.data, static_cast<size_t>(view.num_elements() * dtype_bytes(view.dtype))};
}

template <typename Body>
void for_each_parameter(ModelHarness& harness, Body&& body) {
  const std::vector<LayerDecl>& layers = harness.layers();
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (size_t index = 0; index < layers[layer].parameters.size(); ++index)
      body(layers[layer].parameters[index], storage_of(harness, static_cast<int>(layer), static_cast<int>(index)));
}

Bytes parameters_of(ModelHarness& harness) {
  Bytes bytes;
  for_each_parameter(harness, [&](const ParameterDecl& parameter, std::span<std::byte> values) {
    bytes[parameter.name].assign(values.begin(), values.end());
  });
  return bytes;
}

void put_back(ModelHarness& harness, const Bytes& bytes, const std::vector<std::string>& names) {
  for_each_parameter(harness, [&](const ParameterDecl& parameter, std::span<std::byte> values) {
    if (std::ranges::count(names, parameter.name) > 0)
      std::memcpy(values.data(), bytes.at(parameter.name).data(), values.size());
  });
}

// Without clipping, whose factor depends on the frozen gradients.
HarnessOptions options_of(const ModelSpec& model, Precision precision) {
  HarnessOptions options;
  options.model = model;
  options.model.residual_dropout = options.model.embedding_dropout = 0.1f;
  options.precision = precision;
  options.optimizer.clip_norm = 0;
  options.micro_batch = 2;
  options.accumulation = 2;
  options.activations = ActivationPolicy::kSelective;
  return options;
}

void expect_frozen_training(HarnessOptions options, const std::vector<std::string>& patterns) {
  SCOPED_TRACE(fmt::format("{} {}", options.model.family, fmt::join(patterns, " ")));
  const std::vector<Document> documents = make_documents(4, 13, 97, 3);
  ModelHarness full(options);
  options.frozen = patterns;
  ModelHarness frozen(options);
  const std::vector<std::string> names = frozen_parameters(frozen.layers());
  full.fill(documents);
  frozen.fill(documents);
  const Bytes initial = parameters_of(frozen);
  ASSERT_EQ(parameters_of(full), initial);
  for (int step = 1; step <= 3; ++step) {
    EXPECT_EQ(frozen.step(1e-2), full.step(1e-2)) << "loss of step " << step;
    put_back(full, initial, names);
  }
  const Bytes trained = parameters_of(frozen);
  EXPECT_EQ(trained, parameters_of(full));
  for (const auto& [name, bytes] : trained)
    EXPECT_EQ(bytes == initial.at(name), std::ranges::count(names, name) > 0) << name;
}

class Frozen : public ::testing::TestWithParam<Precision> {};

TEST_P(Frozen, EveryTensorAlone) {
  for (const ModelSpec& model : {tiny_gpt2(), tiny_llama()}) {
    const std::vector<LayerDecl> layers = declare_layers(model);
    for (const LayerDecl& layer : layers) {
      if (layer.block > 0) continue;
      for (size_t index = 0; index < layer.parameters.size(); ++index)
        if (static_cast<int>(index) != layer.tied_parameter)
          expect_frozen_training(options_of(model, GetParam()), {layer.parameters[index].name});
    }
  }
}

TEST_P(Frozen, AllButOneKind) {
  const ModelSpec model = tiny_gpt2();
  for (const std::vector<std::string>& patterns : std::vector<std::vector<std::string>>{
           {"*.weight"},                                                          // biases
           {"*.bias", "*up.*", "*down.*", "*qkv.*", "*output.*", "embedding.*"},  // weights of norms
           {"*norm.*", "*.bias", "embedding.token.*"},                            // the position table and matrices
           {"attention.*", "mlp.*", "head.*", "embedding.position.*"},            // a tied table
           {"embedding.*", "attention.*", "mlp.0.*", "mlp.1.*weight"},            // the top
       })
    expect_frozen_training(options_of(model, GetParam()), patterns);
  expect_frozen_training(options_of(tiny_llama(), GetParam()), {"attention.*", "mlp.*", "head.norm.*", "embedding.*"});
}

INSTANTIATE_TEST_SUITE_P(Precisions, Frozen, ::testing::Values(Precision::kF32, Precision::kBF16),
                         [](const auto& tested) { return tested.param == Precision::kF32 ? "F32" : "BF16"; });

// The norm is of what is trained: that of the other tensors of the whole run.
TEST(FrozenNorm, CountsTrainedTensors) {
  HarnessOptions options = options_of(tiny_gpt2(), Precision::kF32);
  ModelHarness full(options);
  options.frozen = {"mlp.*", "embedding.token.weight"};
  ModelHarness frozen(options);
  for (ModelHarness* harness : {&full, &frozen}) {
    harness->fill(make_documents(4, 13, 97, 3));
    harness->step(1e-2);
  }
  double expected = 0;
  const std::vector<std::string> names = frozen_parameters(frozen.layers());
  for (const auto& [name, gradient] : full.gradients())
    if (std::ranges::count(names, name) == 0)
      for (float value : gradient) expected += static_cast<double>(value) * value;
  // Squares are summed in f64; the order differs.
  EXPECT_NEAR(frozen.scalars().norm_squared, expected, 1e-12 * expected);
  for (const std::string& name : names) EXPECT_TRUE(frozen.gradients().at(name).empty()) << name;
}

}  // namespace
}  // namespace strata::testing

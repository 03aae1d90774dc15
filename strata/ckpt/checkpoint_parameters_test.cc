// SPDX-License-Identifier: Apache-2.0
// One rank exports what any number of ranks saved: the same bytes whoever they were.
#include "strata/ckpt/checkpoint_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strata/base/testing.h"
#include "strata/ckpt/testing_world.h"
#include "strata/hf/model_folder.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

CheckpointInfo save(const std::string& folder, const ModelSpec& model, const WorldLayout& layout, Precision precision) {
  World world(model, layout, precision);
  world.fill();
  world.write(folder, 3);
  return open_checkpoint(checkpoint_path(folder, 3));
}

// The weights file of the model in a checkpoint, as one string.
std::string export_weights(const CheckpointInfo& checkpoint, const std::filesystem::path& path, DType dtype) {
  const std::vector<LayerDecl> layers = declare_layers(checkpoint.model);
  CheckpointParameters parameters(checkpoint);
  const auto source = [&](int layer, int index) { return parameters.read(layers[layer].parameters[index]); };
  write_model_folder(path, {checkpoint.model, layers, source, dtype, {}}, ExistingTarget::kReplace);
  return read_text_file(path / "model.safetensors");
}

TEST(CheckpointParameters, AreTheSavedValues) {
  TemporaryFolder folder;
  const CheckpointInfo checkpoint = save(folder.path(), tiny_gpt2(), {2, 2, 2, 2}, Precision::kBF16);
  CheckpointParameters parameters(checkpoint);
  for (const LayerDecl& layer : declare_layers(checkpoint.model))
    for (const ParameterDecl& parameter : layer.parameters) {
      const TensorView values = parameters.read(parameter);
      ASSERT_EQ(values.rows, parameter.rows);
      for (int64_t element = 0; element < values.num_elements(); ++element)
        ASSERT_EQ(values.row<float>(0)[element], value_of(parameter.name, kParametersState, element)) << parameter.name;
    }
}

// GPT-2 stores its projections transposed; the untied head has a tensor of its own.
TEST(CheckpointParameters, TheModelFolderDoesNotDependOnThePlan) {
  ModelSpec untied = tiny_gpt2();
  untied.tied_head = false;
  for (const ModelSpec& model : {tiny_gpt2(), untied})
    for (Precision precision : {Precision::kF32, Precision::kBF16})
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        TemporaryFolder folder;
        const std::string alone =
            export_weights(save(folder.path(), model, {}, precision), folder.path() / "alone", dtype);
        const std::string many =
            export_weights(save(folder.path(), model, {2, 3, 2, 3}, precision), folder.path() / "many", dtype);
        EXPECT_TRUE(alone == many);
        EXPECT_GT(alone.size(), static_cast<size_t>(dtype_bytes(dtype) * count_parameters(declare_layers(model))));
      }
}

TEST(CheckpointParameters, WhatIsNotThereIsAnError) {
  TemporaryFolder folder;
  CheckpointInfo checkpoint = save(folder.path(), tiny_gpt2(), {1, 1, 2, 1}, Precision::kF32);
  CheckpointParameters parameters(checkpoint);
  ParameterDecl parameter = declare_layers(checkpoint.model)[0].parameters[0];
  const auto refusal = [&] { return error_message(ErrorKind::kBadInput, [&] { parameters.read(parameter); }); };
  parameter.rows = 98;
  EXPECT_THAT(refusal(), HasSubstr("embedding.token.weight is 97 x 32, not 98 x 32"));
  parameter.rows = 97;
  std::erase_if(checkpoint.parts, [](const SavedPart& part) { return part.file == "rank-00001.bin"; });
  EXPECT_THAT(refusal(), HasSubstr(" of 3104 elements of embedding.token.weight"));
  parameter.name = "embedding.tokens.weight";
  EXPECT_THAT(refusal(), HasSubstr("has no embedding.tokens.weight"));
}

}  // namespace
}  // namespace strata

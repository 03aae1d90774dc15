// SPDX-License-Identifier: Apache-2.0
// A model as a Hugging Face folder: config.json, generation_config.json and model.safetensors, as transformers writes
// and reads them. Names, row ranges and transposition come from the parameters' HubPart tables; a tied matrix is stored
// once. One parameter is in memory at a time. Parameters are named by (layer, parameter), indices into the declared
// layers.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "strata/base/atomic_file.h"
#include "strata/layers/declaration.h"
#include "strata/spec/model_spec.h"
#include "strata/tensor/tensor.h"

namespace strata {

// The values of a parameter, (rows, cols), f32 or bf16; valid until the next call. Asked for each once.
using ParameterSource = std::function<TensorView(int layer, int parameter)>;
// Takes the values of a parameter, (rows, cols), f32; valid during the call.
using ParameterSink = std::function<void(int layer, int parameter, const TensorView& values)>;
// Whether a parameter is to be read.
using ParameterFilter = std::function<bool(int layer, int parameter)>;

struct ModelFolder {
  const ModelSpec& model;
  const std::vector<LayerDecl>& layers;  // declare_layers(model)
  ParameterSource source;
  DType dtype = DType::kF32;  // of the file: f32 or bf16
  // Writes further files (the tokenizer's) into the folder before it appears; may be empty.
  std::function<void(const std::filesystem::path& folder)> add_files;
};

// The folder appears complete or not at all.
void write_model_folder(const std::filesystem::path& path, const ModelFolder& contents, ExistingTarget existing);

// Every parameter of the model that `wanted` asks for (empty: all), each once; others are not read. Reads
// model.safetensors or the files of model.safetensors.index.json, in f32, bf16 or f16. Throws Error, before the first
// call of `sink`, that lists the tensors that are missing, not expected, or of another shape or type. Names may lack
// the prefix of the model without a head ("transformer."); buffers that are no parameters, and the head of a tied
// model, are passed over.
void read_model_weights(const std::filesystem::path& folder, const ModelSpec& model,
                        const std::vector<LayerDecl>& layers, const ParameterSink& sink,
                        const ParameterFilter& wanted = {});

}  // namespace strata

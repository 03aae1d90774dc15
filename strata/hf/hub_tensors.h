// SPDX-License-Identifier: Apache-2.0
// The tensors of a model as a Hugging Face folder names and shapes them, and how their elements move to and from the
// parameters they are parts of. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "strata/layers/declaration.h"
#include "strata/tensor/tensor.h"

namespace strata {

struct HubTensor {
  std::string name;
  std::vector<int64_t> shape;
  int layer = -1;
  int parameter = -1;
  int part = -1;  // index in ParameterDecl::hub
};

// In the order of the layers, tensors of one parameter together.
std::vector<HubTensor> hub_tensors(const std::vector<LayerDecl>& layers);

// What a hub tensor covers of its parameter's values.
TensorView part_of(const TensorView& values, const ParameterDecl& parameter, const HubPart& part);

// `values` (f32 or bf16) row by row, or column by column when transposed, as `dtype` (f32 or bf16).
std::vector<std::byte> encode_part(const TensorView& values, bool transposed, DType dtype);
// The reverse, into f32. `stored_dtype` is "F32", "BF16" or "F16"; `bytes` need no alignment.
void decode_part(std::span<const std::byte> bytes, const std::string& stored_dtype, bool transposed,
                 const TensorView& values);
bool can_decode(const std::string& stored_dtype);

}  // namespace strata

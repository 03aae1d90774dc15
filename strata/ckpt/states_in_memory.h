// SPDX-License-Identifier: Apache-2.0
// The parameters and optimizer states that one rank has in memory, as parts of whole tensors: what initialisation,
// weights from a model folder and checkpoints fill. Needs no executor and no other rank: from the values of the whole
// tensors every rank fills all that it holds. In bf16 that is the rounded parameters it holds, whoever owns them, and
// the f32 masters it owns. Nothing is owned; different parts may be filled from different threads.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "strata/layers/declaration.h"
#include "strata/program/compile.h"
#include "strata/program/parts.h"
#include "strata/tensor/tensor.h"

namespace strata {

// A set without bookings for optimizer states holds the parameters alone (evaluation, generation).
struct StatesInMemory {
  const CompileInput& input;
  const std::vector<LayerDecl>& layers;
  const ProgramSet& set;       // compile(input, ...)
  std::byte* arena = nullptr;  // of the device tier
};

// The f32 values of a parameter, whatever the storage precision; the other states are named as in optimizer_states().
constexpr const char* kParametersState = "parameters";

// A part of one state of one tensor and where it is, as f32, rounded to bf16, or both.
struct StatePart {
  int layer = -1;
  int parameter = -1;
  std::string_view state;  // kParametersState or one of optimizer_states()
  TensorPart part;
  float* values = nullptr;  // of the first element; null: none
  BF16* rounded = nullptr;
};

// Everything that must be filled before a step. A tied table is listed wherever it is held, under its owner's name.
std::vector<StatePart> list_state_parts(const StatesInMemory& states);
// Of them, the parameters.
std::vector<StatePart> list_parameter_parts(const StatesInMemory& states);

const ParameterDecl& declaration_of(const StatePart& part, const std::vector<LayerDecl>& layers);

// Stores consecutive values from the part's element `begin` on.
void store_values(const StatePart& part, int64_t begin, std::span<const float> values);

}  // namespace strata

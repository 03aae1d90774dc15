// SPDX-License-Identifier: Apache-2.0
// The matrix product behind gemm and linear: tiles of the output spread over the team, one thread each.
// bf16 tiles are accumulated in f32, in c itself or in scratch, over blocks of k, and rounded once.
#pragma once

#include "strata/kernels/kernels.h"

namespace strata::kernels {

enum class Bf16Path {
  kNative,   // the CPU multiplies bf16
  kConvert,  // blocks are converted to f32 in scratch
};

// What this CPU has.
Bf16Path preferred_bf16_path();

// c = or += op(a) * op(b), or with a bias (1, n) c = op(a) * op(b) + bias.
void multiply(const Context& context, const GemmArgs& args, const TensorView& bias, Bf16Path path);

}  // namespace strata::kernels

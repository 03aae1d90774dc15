// SPDX-License-Identifier: Apache-2.0
// The tiny decoder that tests of all modules count, train and save. Included by tests and their headers only.
#pragma once

#include "strata/spec/model_spec.h"

namespace strata {

// GPT-2's shape: vocab 97, hidden 32, 4 heads of 8, ffn 128, 16 positions; tied by default.
inline ModelSpec tiny_gpt2(int64_t num_blocks, bool tied) {
  ModelSpec model;
  model.family = "gpt2";
  model.vocab = 97;
  model.hidden = 32;
  model.num_blocks = num_blocks;
  model.heads = model.kv_heads = 4;
  model.head_dim = 8;
  model.ffn = 128;
  model.max_positions = 16;
  model.tied_head = tied;
  return model;
}
inline ModelSpec tiny_gpt2() { return tiny_gpt2(2, true); }

// The same sizes in Llama's shape: grouped-query attention, RMS norm, SwiGLU, rotary positions, no biases, untied.
inline ModelSpec llama_shaped(ModelSpec model, int64_t kv_heads, int64_t ffn) {
  model.family = "llama";
  model.kv_heads = kv_heads;
  model.ffn = ffn;
  model.norm = NormKind::kRmsNorm;
  model.activation = ActivationKind::kSwiglu;
  model.positions = PositionKind::kRope;
  model.tied_head = model.attention_bias = model.mlp_bias = false;
  return model;
}

}  // namespace strata

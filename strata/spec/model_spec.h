// SPDX-License-Identifier: Apache-2.0
// What a model is, independent of how it is placed: the meaning of a Hugging Face config.json (gpt2 or llama).
// Plain data. Reading refuses what it does not understand: a key that is neither read nor known to be without effect is
// an Error. Absent keys take the defaults of transformers 5. parse_model_spec(to_config_json(spec)) == spec.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace strata {

enum class NormKind { kLayerNorm, kRmsNorm };
enum class ActivationKind { kGeluTanh, kGeluExact, kSwiglu };
enum class PositionKind { kLearned, kRope };

struct ModelSpec {
  std::string family;  // "gpt2" or "llama"
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t num_blocks = 0;  // transformer blocks (attention + MLP)
  int64_t heads = 0;
  int64_t kv_heads = 0;  // equals heads without grouped-query attention
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t max_positions = 0;
  NormKind norm = NormKind::kLayerNorm;
  float norm_eps = 1e-5f;
  ActivationKind activation = ActivationKind::kGeluTanh;
  PositionKind positions = PositionKind::kLearned;
  float rope_theta = 10000.0f;
  bool tied_head = true;
  bool attention_bias = true;  // on the QKV and the output projection
  bool mlp_bias = true;
  float attention_dropout = 0.0f;
  float residual_dropout = 0.0f;
  float embedding_dropout = 0.0f;
  float init_std = 0.02f;
  // -1: none. May lie outside a small vocabulary (files written with the defaults of transformers): then it never
  // occurs.
  int64_t bos_token = -1;
  int64_t eos_token = -1;
  std::vector<int64_t> other_eos_tokens;  // when config.json lists several

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t attended_width() const { return heads * head_dim; }
  int64_t up_width() const { return activation == ActivationKind::kSwiglu ? 2 * ffn : ffn; }
  bool operator==(const ModelSpec&) const = default;
};

// `where` names the source in messages. Throws Error (bad input) for a family, key value or size that is not
// understood, with the numbers (hidden 385 is not a multiple of 6 heads) and what would work.
ModelSpec parse_model_spec(const nlohmann::json& config, const std::string& where);
// The path is a config.json or the folder that holds one.
ModelSpec read_model_spec(const std::string& config_json_path);

// The config.json that transformers (4 and 5) reads back as the same model.
nlohmann::json to_config_json(const ModelSpec& spec);

}  // namespace strata

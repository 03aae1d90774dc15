// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "strata/base/error.h"
#include "strata/spec/json_reader.h"

namespace strata {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

ModelSpec parse(const std::string& text) { return parse_model_spec(json::parse(text), "config.json"); }

std::string refusal(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
  ADD_FAILURE() << "accepted " << text;
  return "";
}

TEST(ModelSpec, Gpt2DefaultsAreThoseOfTransformers) {
  const ModelSpec spec = parse(R"({"model_type": "gpt2"})");
  EXPECT_EQ(spec.vocab, 50257);
  EXPECT_EQ(spec.hidden, 768);
  EXPECT_EQ(spec.num_blocks, 12);
  EXPECT_EQ(spec.heads, 12);
  EXPECT_EQ(spec.kv_heads, 12);
  EXPECT_EQ(spec.head_dim, 64);
  EXPECT_EQ(spec.ffn, 3072);
  EXPECT_EQ(spec.max_positions, 1024);
  EXPECT_EQ(spec.norm, NormKind::kLayerNorm);
  EXPECT_EQ(spec.norm_eps, 1e-5f);
  EXPECT_EQ(spec.activation, ActivationKind::kGeluTanh);
  EXPECT_EQ(spec.positions, PositionKind::kLearned);
  EXPECT_TRUE(spec.tied_head && spec.attention_bias && spec.mlp_bias);
  EXPECT_EQ(spec.attention_dropout, 0.1f);
  EXPECT_EQ(spec.residual_dropout, 0.1f);
  EXPECT_EQ(spec.embedding_dropout, 0.1f);
  EXPECT_EQ(spec.bos_token, 50256);
  EXPECT_EQ(spec.eos_token, 50256);
}

TEST(ModelSpec, LlamaDefaultsAreThoseOfTransformers) {
  const ModelSpec spec = parse(R"({"model_type": "llama"})");
  EXPECT_EQ(spec.vocab, 32000);
  EXPECT_EQ(spec.hidden, 4096);
  EXPECT_EQ(spec.num_blocks, 32);
  EXPECT_EQ(spec.heads, 32);
  EXPECT_EQ(spec.kv_heads, 32);
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_EQ(spec.ffn, 11008);
  EXPECT_EQ(spec.max_positions, 2048);
  EXPECT_EQ(spec.norm, NormKind::kRmsNorm);
  EXPECT_EQ(spec.norm_eps, 1e-6f);
  EXPECT_EQ(spec.activation, ActivationKind::kSwiglu);
  EXPECT_EQ(spec.positions, PositionKind::kRope);
  EXPECT_EQ(spec.rope_theta, 10000.0f);
  EXPECT_FALSE(spec.tied_head || spec.attention_bias || spec.mlp_bias);
  EXPECT_EQ(spec.attention_dropout, 0.0f);
  EXPECT_EQ(spec.residual_dropout, 0.0f);
  EXPECT_EQ(spec.bos_token, 1);
  EXPECT_EQ(spec.eos_token, 2);
}

TEST(ModelSpec, ReadsEveryKeyOfGpt2) {
  const ModelSpec spec =
      parse(R"({"model_type": "gpt2", "vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 80,
    "n_positions": 16, "n_ctx": 16, "activation_function": "gelu", "layer_norm_epsilon": 1e-6, "attn_pdrop": 0.2,
    "resid_pdrop": 0, "embd_pdrop": 0.5, "initializer_range": 0.1, "tie_word_embeddings": false, "bos_token_id": null,
    "eos_token_id": [7, 8], "scale_attn_weights": true, "summary_type": "cls_index", "architectures": ["GPT2LMHeadModel"]})");
  EXPECT_EQ(spec.vocab, 97);
  EXPECT_EQ(spec.head_dim, 8);
  EXPECT_EQ(spec.ffn, 80);
  EXPECT_EQ(spec.max_positions, 16);
  EXPECT_EQ(spec.activation, ActivationKind::kGeluExact);
  EXPECT_EQ(spec.norm_eps, 1e-6f);
  EXPECT_EQ(spec.attention_dropout, 0.2f);
  EXPECT_EQ(spec.residual_dropout, 0.0f);
  EXPECT_EQ(spec.embedding_dropout, 0.5f);
  EXPECT_EQ(spec.init_std, 0.1f);
  EXPECT_FALSE(spec.tied_head);
  EXPECT_EQ(spec.bos_token, -1);
  EXPECT_EQ(spec.eos_token, 7);
  EXPECT_EQ(spec.other_eos_tokens, std::vector<int64_t>{8});
}

TEST(ModelSpec, ReadsEveryKeyOfLlama) {
  const ModelSpec spec = parse(R"({"model_type": "llama", "vocab_size": 97, "hidden_size": 32, "intermediate_size": 88,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "attention_bias": true, "mlp_bias": true, "max_position_embeddings": 64, "attention_dropout": 0.3,
    "tie_word_embeddings": true, "initializer_range": 0.01, "pretraining_tp": 1, "bos_token_id": 5, "eos_token_id": -1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "rope_scaling": null})");
  EXPECT_EQ(spec.kv_heads, 2);
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_EQ(spec.qkv_width(), 128);
  EXPECT_EQ(spec.up_width(), 176);
  EXPECT_EQ(spec.rope_theta, 500000.0f);
  EXPECT_TRUE(spec.tied_head && spec.attention_bias && spec.mlp_bias);
  EXPECT_EQ(spec.attention_dropout, 0.3f);
  EXPECT_EQ(spec.bos_token, 5);
  EXPECT_EQ(spec.eos_token, -1);
}

TEST(ModelSpec, RopeBaseIsReadFromEitherForm) {
  EXPECT_EQ(parse(R"({"model_type": "llama", "rope_theta": 500000})").rope_theta, 500000.0f);
  EXPECT_EQ(parse(R"({"model_type": "llama", "rope_theta": 5e5, "rope_parameters": {"rope_theta": 5e5}})").rope_theta,
            500000.0f);
  EXPECT_EQ(parse(R"({"model_type": "llama", "rope_scaling": {"type": "default"}})").rope_theta, 10000.0f);
  EXPECT_THAT(refusal(R"({"model_type": "llama", "rope_theta": 5e5, "rope_parameters": {"rope_theta": 1e4}})"),
              AllOf(HasSubstr("500000"), HasSubstr("10000")));
}

TEST(ModelSpec, RefusesRopeItDoesNotCompute) {
  EXPECT_THAT(refusal(R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8.0}})"),
              AllOf(HasSubstr("rope_scaling"), HasSubstr("\"llama3\""), HasSubstr("default")));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}})"),
              HasSubstr("\"linear\""));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "rope_parameters": {"rope_type": "yarn"}})"), HasSubstr("\"yarn\""));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "rope_parameters": {"factor": 2}})"), HasSubstr("factor"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "partial_rotary_factor": 0.5})"),
              HasSubstr("partial_rotary_factor 0.5"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "rope_theta": 0})"), HasSubstr("rope_theta is 0"));
}

TEST(ModelSpec, RefusesAnotherFamily) {
  EXPECT_THAT(refusal(R"({"model_type": "bert"})"), AllOf(HasSubstr("\"bert\""), HasSubstr("gpt2, llama")));
  EXPECT_THAT(refusal(R"({"n_embd": 4})"), HasSubstr("model_type is missing"));
  EXPECT_THAT(refusal(R"([1])"), HasSubstr("expected a JSON object, found array"));
}

TEST(ModelSpec, RefusesSizesThatDoNotDivide) {
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "n_embd": 385, "n_head": 6})"),
              AllOf(HasSubstr("n_embd 385"), HasSubstr("n_head 6"), HasSubstr("384 or 390")));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_size": 30, "num_attention_heads": 4})"),
              HasSubstr("hidden_size 30"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 5})"),
              AllOf(HasSubstr("32"), HasSubstr("num_key_value_heads 5")));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "head_dim": 7})"), HasSubstr("head_dim 7 is odd"));
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "n_ctx": 512})"), AllOf(HasSubstr("512"), HasSubstr("1024")));
}

TEST(ModelSpec, RefusesValuesOutOfRangeAndWrongTypes) {
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "n_layer": 0})"), HasSubstr("n_layer is 0"));
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "vocab_size": 18446744073709551615})"),
              HasSubstr("18446744073709551615"));
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "n_embd": "768"})"),
              HasSubstr("n_embd must be an integer, found \"768\""));
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "n_embd": null})"), HasSubstr("null"));
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "attn_pdrop": 1.0})"), HasSubstr("attn_pdrop"));
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "attn_pdrop": "x"})"), HasSubstr("must be a number"));
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "tie_word_embeddings": 1})"), HasSubstr("true or false"));
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "activation_function": "relu"})"),
              AllOf(HasSubstr("\"relu\""), HasSubstr("gelu_new")));
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "activation_function": 3})"), HasSubstr("must be a string"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_act": "gelu"})"), HasSubstr("silu"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "rms_norm_eps": 0})"), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "eos_token_id": "</s>"})"), HasSubstr("eos_token_id"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "bos_token_id": [1, 2]})"), HasSubstr("lists 2 tokens"));
}

TEST(ModelSpec, RefusesOptionsThatChangeTheMaths) {
  for (const char* option : {R"("scale_attn_weights": false)", R"("scale_attn_by_inverse_layer_idx": true)",
                             R"("reorder_and_upcast_attn": true)", R"("add_cross_attention": true)",
                             R"("is_encoder_decoder": true)", R"("pruned_heads": {"0": [1]})"}) {
    EXPECT_THAT(refusal(std::string(R"({"model_type": "gpt2", )") + option + "}"), HasSubstr("is not supported"))
        << option;
  }
  EXPECT_THAT(refusal(R"({"model_type": "llama", "pretraining_tp": 2})"), HasSubstr("pretraining_tp 2"));
}

TEST(ModelSpec, RefusesUnknownKeysWithASuggestion) {
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "n_layers": 3})"),
              HasSubstr("n_layers = 3 in config.json: did you mean n_layer?"));
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "hidden_size": 3})"), HasSubstr("did you mean n_embd?"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "n_layer": 3})"), HasSubstr("did you mean num_hidden_layers?"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "sliding_window": 4096})"), HasSubstr("unknown key sliding_window"));
}

TEST(ModelSpec, ConfigJsonRoundTrips) {
  for (
      const char* text :
      {R"({"model_type": "gpt2"})", R"({"model_type": "llama"})",
       R"({"model_type": "gpt2", "n_inner": 100, "activation_function": "gelu", "layer_norm_epsilon": 3.3e-6, "attn_pdrop": 0.15,
            "resid_pdrop": 0.25, "embd_pdrop": 0.35, "initializer_range": 0.013, "tie_word_embeddings": false, "bos_token_id": null})",
       R"({"model_type": "llama", "num_key_value_heads": 8, "head_dim": 96, "rope_theta": 123456.7, "attention_bias": true,
            "mlp_bias": true, "attention_dropout": 0.1, "tie_word_embeddings": true, "eos_token_id": [2, 5, 9]})"}) {
    const ModelSpec spec = parse(text);
    EXPECT_EQ(parse_model_spec(to_config_json(spec), "again"), spec) << text;
  }
}

TEST(ModelSpec, WritesShortDecimals) {
  EXPECT_EQ(to_config_json(parse(R"({"model_type": "gpt2"})"))["layer_norm_epsilon"].dump(), "1e-05");
  EXPECT_EQ(shortest_decimal(0.02f), 0.02);
}

TEST(ModelSpec, ReadsFilesAndFolders) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "strata_model_spec_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"model_type": "gpt2", "n_layer": 3})";
  std::ofstream(folder / "broken.json") << R"({"model_type": )";
  EXPECT_EQ(read_model_spec(folder.string()).num_blocks, 3);
  EXPECT_EQ(read_model_spec((folder / "config.json").string()).num_blocks, 3);
  EXPECT_THROW(read_model_spec((folder / "missing.json").string()), Error);
  EXPECT_THROW(read_model_spec((folder / "broken.json").string()), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/spec/model_spec.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "strata/base/error.h"
#include "strata/base/units.h"
#include "strata/spec/json_reader.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();  // ids and positions are 32-bit

// Written by transformers into any config.json, without influence on what the model computes.
const std::vector<std::string>& keys_without_effect() {
  static const std::vector<std::string> keys = {"_attn_implementation_autoset",
                                                "_name_or_path",
                                                "architectures",
                                                "auto_map",
                                                "bad_words_ids",
                                                "begin_suppress_tokens",
                                                "chunk_size_feed_forward",
                                                "cls_token_id",
                                                "decoder_start_token_id",
                                                "diversity_penalty",
                                                "do_sample",
                                                "dtype",
                                                "early_stopping",
                                                "encoder_no_repeat_ngram_size",
                                                "exponential_decay_length_penalty",
                                                "finetuning_task",
                                                "forced_bos_token_id",
                                                "forced_eos_token_id",
                                                "gradient_checkpointing",
                                                "id2label",
                                                "is_decoder",
                                                "label2id",
                                                "length_penalty",
                                                "max_length",
                                                "min_length",
                                                "no_repeat_ngram_size",
                                                "num_beam_groups",
                                                "num_beams",
                                                "num_labels",
                                                "num_return_sequences",
                                                "output_attentions",
                                                "output_hidden_states",
                                                "output_past",
                                                "output_scores",
                                                "pad_token_id",
                                                "prefix",
                                                "problem_type",
                                                "remove_invalid_values",
                                                "repetition_penalty",
                                                "return_dict",
                                                "return_dict_in_generate",
                                                "sep_token_id",
                                                "suppress_tokens",
                                                "task_specific_params",
                                                "temperature",
                                                "tf_legacy_loss",
                                                "tokenizer_class",
                                                "top_k",
                                                "top_p",
                                                "torch_dtype",
                                                "torchscript",
                                                "transformers_version",
                                                "typical_p",
                                                "unk_token_id",
                                                "use_bfloat16",
                                                "use_cache"};
  return keys;
}

// A token id as transformers writes it: an integer, null or (older files) -1 for none, for the end also a list.
std::vector<int64_t> read_tokens(JsonReader& reader, const std::string& key, int64_t fallback,
                                 const std::string& where) {
  if (!reader.has(key)) return {fallback};
  if (!reader.has_value(key)) return {};
  const json& value = reader.at(key);
  const json list = value.is_array() ? value : json::array({value});
  std::vector<int64_t> tokens;
  for (const json& item : list) {
    const bool valid = item.is_number_integer() && item >= -1 && item <= kMaxSize;
    if (!valid)
      throw_bad_input("{}: {} {} must hold token ids from 0 to {}, or null for none", where, key, value.dump(),
                      kMaxSize);
    if (item >= 0) tokens.push_back(item.get<int64_t>());
  }
  return tokens;
}

void read_special_tokens(JsonReader& reader, int64_t default_bos, int64_t default_eos, const std::string& where,
                         ModelSpec& spec) {
  const std::vector<int64_t> bos = read_tokens(reader, "bos_token_id", default_bos, where);
  if (bos.size() > 1) throw_bad_input("{}: bos_token_id lists {} tokens; a model has one", where, bos.size());
  spec.bos_token = bos.empty() ? -1 : bos[0];
  const std::vector<int64_t> eos = read_tokens(reader, "eos_token_id", default_eos, where);
  spec.eos_token = eos.empty() ? -1 : eos[0];
  if (eos.size() > 1) spec.other_eos_tokens.assign(eos.begin() + 1, eos.end());
}

int64_t read_size(JsonReader& reader, const std::string& key, int64_t fallback) {
  return reader.integer(key, fallback, 1, kMaxSize);
}

float read_rate(JsonReader& reader, const std::string& key, double fallback) {
  // The largest float below 1: at 1 nothing would be left to scale.
  return static_cast<float>(reader.real(key, fallback, 0.0, 1.0 - 0x1p-24));
}

float read_positive(JsonReader& reader, const std::string& key, double fallback) {
  return static_cast<float>(
      reader.real(key, fallback, std::numeric_limits<float>::min(), std::numeric_limits<float>::max()));
}

void check_heads(const ModelSpec& spec, const char* hidden_key, const char* heads_key, const std::string& where) {
  if (spec.hidden % spec.heads == 0) return;
  const int64_t near = std::max<int64_t>(1, spec.hidden / spec.heads) * spec.heads;
  throw_bad_input("{}: {} {} is not a multiple of {} {}; {} or {} is", where, hidden_key, spec.hidden, heads_key,
                  spec.heads, near, near + spec.heads);
}

// n_ctx is an old second name of n_positions that transformers does not read: it must agree.
void check_context(JsonReader& reader, const ModelSpec& spec, const std::string& where) {
  const int64_t context = read_size(reader, "n_ctx", spec.max_positions);
  if (context != spec.max_positions) {
    throw_bad_input(
        "{}: n_ctx {} and n_positions {} (1024 when absent) differ; set n_positions to the wanted length and remove "
        "n_ctx",
        where, context, spec.max_positions);
  }
}

ModelSpec parse_gpt2(JsonReader& reader, const std::string& where) {
  ModelSpec spec;
  spec.family = "gpt2";
  spec.vocab = read_size(reader, "vocab_size", 50257);
  spec.hidden = read_size(reader, "n_embd", 768);
  spec.num_blocks = read_size(reader, "n_layer", 12);
  spec.heads = read_size(reader, "n_head", 12);
  check_heads(spec, "n_embd", "n_head", where);
  spec.kv_heads = spec.heads;
  spec.head_dim = spec.hidden / spec.heads;
  spec.ffn = reader.has_value("n_inner") ? read_size(reader, "n_inner", 0) : 4 * spec.hidden;
  spec.max_positions = read_size(reader, "n_positions", 1024);
  check_context(reader, spec, where);
  spec.norm_eps = read_positive(reader, "layer_norm_epsilon", 1e-5);
  const size_t activation = reader.choice("activation_function", 0, {"gelu_new", "gelu_pytorch_tanh", "gelu"});
  spec.activation = activation == 2 ? ActivationKind::kGeluExact : ActivationKind::kGeluTanh;
  spec.tied_head = reader.boolean("tie_word_embeddings", true);
  spec.attention_dropout = read_rate(reader, "attn_pdrop", 0.1);
  spec.residual_dropout = read_rate(reader, "resid_pdrop", 0.1);
  spec.embedding_dropout = read_rate(reader, "embd_pdrop", 0.1);
  spec.init_std = static_cast<float>(reader.real("initializer_range", 0.02, 0.0, 1.0));
  read_special_tokens(reader, 50256, 50256, where, spec);
  reader.require("scale_attn_weights", true);
  reader.require("scale_attn_by_inverse_layer_idx", false);
  reader.require("reorder_and_upcast_attn", false);
  reader.ignore(
      {"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"});
  return spec;
}

// One of the two nested forms, "rope_parameters" (transformers 5) and "rope_scaling" (4); may hold the base too.
void read_rope_object(JsonReader& reader, const std::string& key, const std::string& where,
                      std::optional<double>& theta) {
  if (!reader.has_value(key)) return;
  JsonReader rope(reader.at(key), where + " " + key);
  for (const char* name : {"rope_type", "type"}) rope.choice(name, 0, {"default"});
  rope.require("partial_rotary_factor", 1.0);
  if (rope.has_value("rope_theta")) {
    const double nested = read_positive(rope, "rope_theta", 0.0);
    if (theta && *theta != nested) {
      throw_bad_input("{}: rope_theta is {} and {}.rope_theta is {}; keep one", where, *theta, key, nested);
    }
    theta = nested;
  }
  rope.refuse_unknown();
}

float read_rope_theta(JsonReader& reader, const std::string& where) {
  std::optional<double> theta;
  if (reader.has_value("rope_theta")) theta = read_positive(reader, "rope_theta", 0.0);
  read_rope_object(reader, "rope_parameters", where, theta);
  read_rope_object(reader, "rope_scaling", where, theta);
  reader.require("partial_rotary_factor", 1.0);
  reader.require("rope_interleaved", false);
  return static_cast<float>(theta.value_or(10000.0));
}

void read_llama_heads(JsonReader& reader, const std::string& where, ModelSpec& spec) {
  spec.heads = read_size(reader, "num_attention_heads", 32);
  check_heads(spec, "hidden_size", "num_attention_heads", where);
  spec.kv_heads = reader.has_value("num_key_value_heads") ? read_size(reader, "num_key_value_heads", 0) : spec.heads;
  if (spec.heads % spec.kv_heads != 0) {
    throw_bad_input("{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", where, spec.heads,
                    spec.kv_heads);
  }
  spec.head_dim = reader.has_value("head_dim") ? read_size(reader, "head_dim", 0) : spec.hidden / spec.heads;
  if (spec.head_dim % 2 != 0) {
    throw_bad_input("{}: head_dim {} is odd; rotary positions turn pairs of channels, so it must be even", where,
                    spec.head_dim);
  }
}

ModelSpec parse_llama(JsonReader& reader, const std::string& where) {
  ModelSpec spec;
  spec.family = "llama";
  spec.norm = NormKind::kRmsNorm;
  spec.activation = ActivationKind::kSwiglu;
  spec.positions = PositionKind::kRope;
  spec.vocab = read_size(reader, "vocab_size", 32000);
  spec.hidden = read_size(reader, "hidden_size", 4096);
  spec.ffn = read_size(reader, "intermediate_size", 11008);
  spec.num_blocks = read_size(reader, "num_hidden_layers", 32);
  read_llama_heads(reader, where, spec);
  spec.max_positions = read_size(reader, "max_position_embeddings", 2048);
  spec.norm_eps = read_positive(reader, "rms_norm_eps", 1e-6);
  spec.rope_theta = read_rope_theta(reader, where);
  spec.tied_head = reader.boolean("tie_word_embeddings", false);
  spec.attention_bias = reader.boolean("attention_bias", false);
  spec.mlp_bias = reader.boolean("mlp_bias", false);
  if (reader.has_value("attention_dropout")) spec.attention_dropout = read_rate(reader, "attention_dropout", 0.0);
  spec.init_std = static_cast<float>(reader.real("initializer_range", 0.02, 0.0, 1.0));
  read_special_tokens(reader, 1, 2, where, spec);
  reader.choice("hidden_act", 0, {"silu"});
  if (reader.has_value("pretraining_tp")) reader.require("pretraining_tp", 1);
  return spec;
}

// Names of one family that are found in files of another, so that the message names the right one.
const std::map<std::string, std::string>& names_of_gpt2() {
  static const std::map<std::string, std::string> names = {{"hidden_size", "n_embd"},
                                                           {"num_hidden_layers", "n_layer"},
                                                           {"num_attention_heads", "n_head"},
                                                           {"intermediate_size", "n_inner"},
                                                           {"hidden_act", "activation_function"},
                                                           {"max_position_embeddings", "n_positions"},
                                                           {"attention_dropout", "attn_pdrop"},
                                                           {"layer_norm_eps", "layer_norm_epsilon"},
                                                           {"block_size", "n_positions"}};
  return names;
}

const std::map<std::string, std::string>& names_of_llama() {
  static const std::map<std::string, std::string> names = {{"n_embd", "hidden_size"},
                                                           {"n_layer", "num_hidden_layers"},
                                                           {"n_head", "num_attention_heads"},
                                                           {"n_inner", "intermediate_size"},
                                                           {"activation_function", "hidden_act"},
                                                           {"n_positions", "max_position_embeddings"},
                                                           {"attn_pdrop", "attention_dropout"},
                                                           {"layer_norm_epsilon", "rms_norm_eps"},
                                                           {"n_kv_heads", "num_key_value_heads"}};
  return names;
}

json token_or_null(int64_t token) { return token < 0 ? json(nullptr) : json(token); }

json eos_tokens(const ModelSpec& spec) {
  if (spec.other_eos_tokens.empty()) return token_or_null(spec.eos_token);
  json tokens = json::array({spec.eos_token});
  for (const int64_t token : spec.other_eos_tokens) tokens.push_back(token);
  return tokens;
}

json gpt2_json(const ModelSpec& spec) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"n_embd", spec.hidden},
          {"n_layer", spec.num_blocks},
          {"n_head", spec.heads},
          {"n_inner", spec.ffn == 4 * spec.hidden ? json(nullptr) : json(spec.ffn)},
          {"n_positions", spec.max_positions},
          {"activation_function", spec.activation == ActivationKind::kGeluExact ? "gelu" : "gelu_new"},
          {"layer_norm_epsilon", shortest_decimal(spec.norm_eps)},
          {"attn_pdrop", shortest_decimal(spec.attention_dropout)},
          {"resid_pdrop", shortest_decimal(spec.residual_dropout)},
          {"embd_pdrop", shortest_decimal(spec.embedding_dropout)}};
}

// The base of the rotary positions stands twice: transformers 4 reads rope_theta, 5 reads rope_parameters.
json llama_json(const ModelSpec& spec) {
  const double theta = shortest_decimal(spec.rope_theta);
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", spec.hidden},
          {"intermediate_size", spec.ffn},
          {"num_hidden_layers", spec.num_blocks},
          {"num_attention_heads", spec.heads},
          {"num_key_value_heads", spec.kv_heads},
          {"head_dim", spec.head_dim},
          {"hidden_act", "silu"},
          {"max_position_embeddings", spec.max_positions},
          {"rms_norm_eps", shortest_decimal(spec.norm_eps)},
          {"rope_theta", theta},
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", theta}}},
          {"attention_bias", spec.attention_bias},
          {"mlp_bias", spec.mlp_bias},
          {"attention_dropout", shortest_decimal(spec.attention_dropout)}};
}

}  // namespace

ModelSpec parse_model_spec(const json& config, const std::string& where) {
  JsonReader reader(config, where);
  const bool gpt2 = reader.choice("model_type", std::nullopt, {"gpt2", "llama"}) == 0;
  ModelSpec spec = gpt2 ? parse_gpt2(reader, where) : parse_llama(reader, where);
  reader.require("add_cross_attention", false);
  reader.require("is_encoder_decoder", false);
  reader.require("tie_encoder_decoder", false);
  reader.require("cross_attention_hidden_size", nullptr);
  reader.require("pruned_heads", json::object());
  reader.ignore(keys_without_effect());
  reader.refuse_unknown(gpt2 ? names_of_gpt2() : names_of_llama());
  return spec;
}

ModelSpec read_model_spec(const std::string& config_json_path) {
  std::filesystem::path path(config_json_path);
  if (std::filesystem::is_directory(path)) path /= "config.json";
  return parse_model_spec(read_json_file(path.string()), path.string());
}

json to_config_json(const ModelSpec& spec) {
  STRATA_CHECK(spec.family == "gpt2" || spec.family == "llama", "family \"{}\"", spec.family);
  json config = spec.family == "gpt2" ? gpt2_json(spec) : llama_json(spec);
  config["model_type"] = spec.family;
  config["vocab_size"] = spec.vocab;
  config["tie_word_embeddings"] = spec.tied_head;
  config["initializer_range"] = shortest_decimal(spec.init_std);
  config["bos_token_id"] = token_or_null(spec.bos_token);
  config["eos_token_id"] = eos_tokens(spec);
  return config;
}

}  // namespace strata

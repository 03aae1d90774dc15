// SPDX-License-Identifier: Apache-2.0
#include "strata/layers/parameters.h"

#include <fmt/format.h>

namespace strata {
namespace {

bool is_gpt2(const ModelSpec& model) { return model.family == "gpt2"; }

ParameterDecl vector_parameter(std::string name, int64_t size, Init init) {
  ParameterDecl decl{};
  decl.name = std::move(name);
  decl.rows = 1;
  decl.cols = size;
  decl.matrix = false;
  decl.init = init;
  return decl;
}

ParameterDecl matrix_parameter(std::string name, int64_t rows, int64_t cols, std::vector<HubPart> hub) {
  ParameterDecl decl{};
  decl.name = std::move(name);
  decl.rows = rows;
  decl.cols = cols;
  decl.hub = std::move(hub);
  return decl;
}

// `hub` is the norm's Hugging Face prefix.
void add_norm(std::vector<ParameterDecl>& table, const ModelSpec& model, const std::string& prefix,
              const std::string& hub) {
  ParameterDecl weight = vector_parameter(prefix + "norm.weight", model.hidden, Init::kOnes);
  weight.partial_over_tp = true;
  weight.hub = {{hub + ".weight", 0, model.hidden, false}};
  table.push_back(weight);
  if (model.norm != NormKind::kLayerNorm) return;
  ParameterDecl bias = vector_parameter(prefix + "norm.bias", model.hidden, Init::kZeros);
  bias.partial_over_tp = true;
  bias.hub = {{hub + ".bias", 0, model.hidden, false}};
  table.push_back(bias);
}

// Tensor-parallel ranks have their share of the rows.
ParameterDecl table_parameter(std::string name, int64_t rows, const ModelSpec& model, std::string hub) {
  ParameterDecl decl = matrix_parameter(std::move(name), rows, model.hidden, {{std::move(hub), 0, rows, false}});
  decl.partition = Partition::kTableRows;
  return decl;
}

// One Hugging Face projection inside a (possibly fused) weight.
struct Projection {
  std::string hub;
  int64_t outputs;
};

struct Linear {
  std::string name;
  int64_t in;
  bool bias;
  Partition partition;  // kRows splits outputs, kCols splits inputs
  Init init;
  std::vector<Projection> projections;
  std::vector<int64_t> split_blocks;
};

void add_linear(std::vector<ParameterDecl>& table, const ModelSpec& model, const Linear& linear) {
  ParameterDecl weight = matrix_parameter(linear.name + ".weight", 0, linear.in, {});
  weight.partition = linear.partition;
  weight.init = linear.init;
  weight.split_blocks = linear.split_blocks;
  std::vector<HubPart> bias_parts;
  for (const Projection& projection : linear.projections) {
    weight.hub.push_back({projection.hub + ".weight", weight.rows, projection.outputs, is_gpt2(model)});
    bias_parts.push_back({projection.hub + ".bias", weight.rows, projection.outputs, false});
    weight.rows += projection.outputs;
  }
  const int64_t outputs = weight.rows;
  table.push_back(std::move(weight));
  if (!linear.bias) return;
  ParameterDecl bias = vector_parameter(linear.name + ".bias", outputs, Init::kZeros);
  // The bias of split inputs belongs to the first tensor-parallel rank: it alone adds it and has its gradient.
  bias.partition = linear.partition == Partition::kRows ? Partition::kCols : Partition::kReplicated;
  bias.split_blocks = linear.split_blocks;
  bias.partial_over_tp = linear.partition == Partition::kCols;
  bias.hub = std::move(bias_parts);
  table.push_back(std::move(bias));
}

int find(const std::vector<ParameterDecl>& table, std::string_view suffix) {
  for (size_t index = 0; index < table.size(); ++index)
    if (table[index].name.ends_with(suffix)) return static_cast<int>(index);
  return -1;
}

}  // namespace

std::vector<ParameterDecl> embedding_parameter_table(const ModelSpec& model) {
  const std::string token = is_gpt2(model) ? "transformer.wte.weight" : "model.embed_tokens.weight";
  std::vector<ParameterDecl> table = {table_parameter("embedding.token.weight", model.vocab, model, token)};
  if (model.positions == PositionKind::kLearned)
    table.push_back(table_parameter("embedding.position.weight", model.max_positions, model, "transformer.wpe.weight"));
  return table;
}

std::vector<ParameterDecl> attention_parameter_table(const ModelSpec& model, int64_t block) {
  std::vector<ParameterDecl> table;
  const std::string prefix = fmt::format("attention.{}.", block);
  const std::string hub = fmt::format("{}.{}.", is_gpt2(model) ? "transformer.h" : "model.layers", block);
  add_norm(table, model, prefix, hub + (is_gpt2(model) ? "ln_1" : "input_layernorm"));
  const int64_t kv = model.kv_heads * model.head_dim;
  std::vector<Projection> qkv = {{hub + "attn.c_attn", model.qkv_width()}};
  if (!is_gpt2(model))
    qkv = {{hub + "self_attn.q_proj", model.attended_width()},
           {hub + "self_attn.k_proj", kv},
           {hub + "self_attn.v_proj", kv}};
  add_linear(table, model,
             {prefix + "qkv",
              model.hidden,
              model.attention_bias,
              Partition::kRows,
              Init::kNormal,
              qkv,
              {model.attended_width(), kv, kv}});
  const std::string output = hub + (is_gpt2(model) ? "attn.c_proj" : "self_attn.o_proj");
  add_linear(table, model,
             {prefix + "output",
              model.attended_width(),
              model.attention_bias,
              Partition::kCols,
              Init::kNormalResidual,
              {{output, model.hidden}},
              {}});
  return table;
}

std::vector<ParameterDecl> mlp_parameter_table(const ModelSpec& model, int64_t block) {
  std::vector<ParameterDecl> table;
  const std::string prefix = fmt::format("mlp.{}.", block);
  const std::string hub = fmt::format("{}.{}.", is_gpt2(model) ? "transformer.h" : "model.layers", block);
  add_norm(table, model, prefix, hub + (is_gpt2(model) ? "ln_2" : "post_attention_layernorm"));
  std::vector<Projection> up = {{hub + "mlp.c_fc", model.ffn}};
  std::vector<int64_t> up_blocks;
  if (!is_gpt2(model)) {
    up = {{hub + "mlp.gate_proj", model.ffn}, {hub + "mlp.up_proj", model.ffn}};
    up_blocks = {model.ffn, model.ffn};
  }
  add_linear(table, model,
             {prefix + "up", model.hidden, model.mlp_bias, Partition::kRows, Init::kNormal, up, up_blocks});
  const std::string down = hub + (is_gpt2(model) ? "mlp.c_proj" : "mlp.down_proj");
  add_linear(table, model,
             {prefix + "down",
              model.ffn,
              model.mlp_bias,
              Partition::kCols,
              Init::kNormalResidual,
              {{down, model.hidden}},
              {}});
  return table;
}

std::vector<ParameterDecl> head_parameter_table(const ModelSpec& model) {
  std::vector<ParameterDecl> table;
  add_norm(table, model, "head.", is_gpt2(model) ? "transformer.ln_f" : "model.norm");
  if (model.tied_head) {
    table.push_back(embedding_parameter_table(model).front());
    table.back().hub.clear();  // stored once, by its owner
  } else {
    table.push_back(table_parameter("head.weight", model.vocab, model, "lm_head.weight"));
  }
  return table;
}

AttentionParameters attention_parameters(const ModelSpec& model) {
  const std::vector<ParameterDecl> table = attention_parameter_table(model, 0);
  return {find(table, "norm.weight"), find(table, "norm.bias"),     find(table, "qkv.weight"),
          find(table, "qkv.bias"),    find(table, "output.weight"), find(table, "output.bias")};
}

MlpParameters mlp_parameters(const ModelSpec& model) {
  const std::vector<ParameterDecl> table = mlp_parameter_table(model, 0);
  return {find(table, "norm.weight"), find(table, "norm.bias"),   find(table, "up.weight"),
          find(table, "up.bias"),     find(table, "down.weight"), find(table, "down.bias")};
}

HeadParameters head_parameters(const ModelSpec& model) {
  const std::vector<ParameterDecl> table = head_parameter_table(model);
  return {find(table, "norm.weight"), find(table, "norm.bias"), static_cast<int>(table.size()) - 1};
}

EmbeddingParameters embedding_parameters(const ModelSpec& model) {
  return {0, model.positions == PositionKind::kLearned ? 1 : -1};
}

}  // namespace strata

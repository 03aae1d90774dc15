// SPDX-License-Identifier: Apache-2.0
#include "strata/layers/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace strata {
namespace {

using ::testing::ElementsAre;

ModelSpec gpt2_124m() {
  ModelSpec model;
  model.family = "gpt2";
  model.vocab = 50257;
  model.hidden = 768;
  model.num_blocks = 12;
  model.heads = model.kv_heads = 12;
  model.head_dim = 64;
  model.ffn = 3072;
  model.max_positions = 1024;
  return model;
}

// Grouped-query attention: 32 query heads, 8 key-value heads of 64.
ModelSpec llama_1b() {
  ModelSpec model;
  model.family = "llama";
  model.vocab = 128256;
  model.hidden = 2048;
  model.num_blocks = 16;
  model.heads = 32;
  model.kv_heads = 8;
  model.head_dim = 64;
  model.ffn = 8192;
  model.max_positions = 131072;
  model.norm = NormKind::kRmsNorm;
  model.activation = ActivationKind::kSwiglu;
  model.positions = PositionKind::kRope;
  model.attention_bias = model.mlp_bias = false;
  return model;
}

// The first parameter with this end of its name.
ParameterDecl named(const ModelSpec& model, std::string_view suffix) {
  for (const LayerDecl& layer : declare_layers(model))
    for (const ParameterDecl& parameter : layer.parameters)
      if (parameter.name.ends_with(suffix)) return parameter;
  return {};
}

// Shape in the file: (rows) or (rows, cols).
std::map<std::string, std::vector<int64_t>> hub_shapes(const ModelSpec& model) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const LayerDecl& layer : declare_layers(model))
    for (const ParameterDecl& parameter : layer.parameters)
      for (const HubPart& part : parameter.hub) {
        std::vector<int64_t> shape = {part.count};
        if (parameter.matrix)
          shape = part.transposed ? std::vector{parameter.cols, part.count} : std::vector{part.count, parameter.cols};
        EXPECT_TRUE(shapes.emplace(part.name, shape).second) << part.name << " twice";
      }
  return shapes;
}

TEST(Parameters, CountsOfKnownModels) {
  EXPECT_EQ(count_parameters(declare_layers(gpt2_124m())), 124'439'808);
  // 128256 x 2048 + 16 x (2 x 2048 + (32 + 16) x 64 x 2048 + 2048 x 2048 + 3 x 2048 x 8192) + 2048, the published 1.24
  // billion.
  EXPECT_EQ(count_parameters(declare_layers(llama_1b())), 1'235'814'400);
  ModelSpec untied = llama_1b();
  untied.tied_head = false;
  EXPECT_EQ(count_parameters(declare_layers(untied)), 1'235'814'400 + 128256 * 2048);
}

// GPT-2 stores projections as (in, out); 12 tensors per block, two tables and the final norm.
TEST(Parameters, HubNamesAndShapesOfGpt2) {
  const auto shapes = hub_shapes(gpt2_124m());
  EXPECT_EQ(shapes.size(), 12u * 12 + 4);
  EXPECT_THAT(shapes.at("transformer.wte.weight"), ElementsAre(50257, 768));
  EXPECT_THAT(shapes.at("transformer.wpe.weight"), ElementsAre(1024, 768));
  EXPECT_THAT(shapes.at("transformer.h.0.ln_1.weight"), ElementsAre(768));
  EXPECT_THAT(shapes.at("transformer.h.0.ln_1.bias"), ElementsAre(768));
  EXPECT_THAT(shapes.at("transformer.h.11.attn.c_attn.weight"), ElementsAre(768, 2304));
  EXPECT_THAT(shapes.at("transformer.h.11.attn.c_attn.bias"), ElementsAre(2304));
  EXPECT_THAT(shapes.at("transformer.h.3.attn.c_proj.weight"), ElementsAre(768, 768));
  EXPECT_THAT(shapes.at("transformer.h.3.attn.c_proj.bias"), ElementsAre(768));
  EXPECT_THAT(shapes.at("transformer.h.3.ln_2.bias"), ElementsAre(768));
  EXPECT_THAT(shapes.at("transformer.h.3.mlp.c_fc.weight"), ElementsAre(768, 3072));
  EXPECT_THAT(shapes.at("transformer.h.3.mlp.c_fc.bias"), ElementsAre(3072));
  EXPECT_THAT(shapes.at("transformer.h.3.mlp.c_proj.weight"), ElementsAre(3072, 768));
  EXPECT_THAT(shapes.at("transformer.h.3.mlp.c_proj.bias"), ElementsAre(768));
  EXPECT_THAT(shapes.at("transformer.ln_f.weight"), ElementsAre(768));
  EXPECT_FALSE(shapes.contains("lm_head.weight"));
}

// Llama stores projections as (out, in); 9 tensors per block, the token table and the final norm.
TEST(Parameters, HubNamesAndShapesOfLlama) {
  const auto shapes = hub_shapes(llama_1b());
  EXPECT_EQ(shapes.size(), 16u * 9 + 2);
  EXPECT_THAT(shapes.at("model.embed_tokens.weight"), ElementsAre(128256, 2048));
  EXPECT_THAT(shapes.at("model.layers.15.input_layernorm.weight"), ElementsAre(2048));
  EXPECT_THAT(shapes.at("model.layers.15.self_attn.q_proj.weight"), ElementsAre(2048, 2048));
  EXPECT_THAT(shapes.at("model.layers.15.self_attn.k_proj.weight"), ElementsAre(512, 2048));
  EXPECT_THAT(shapes.at("model.layers.15.self_attn.v_proj.weight"), ElementsAre(512, 2048));
  EXPECT_THAT(shapes.at("model.layers.15.self_attn.o_proj.weight"), ElementsAre(2048, 2048));
  EXPECT_THAT(shapes.at("model.layers.15.post_attention_layernorm.weight"), ElementsAre(2048));
  EXPECT_THAT(shapes.at("model.layers.15.mlp.gate_proj.weight"), ElementsAre(8192, 2048));
  EXPECT_THAT(shapes.at("model.layers.15.mlp.up_proj.weight"), ElementsAre(8192, 2048));
  EXPECT_THAT(shapes.at("model.layers.15.mlp.down_proj.weight"), ElementsAre(2048, 8192));
  EXPECT_THAT(shapes.at("model.norm.weight"), ElementsAre(2048));
  ModelSpec untied = llama_1b();
  untied.tied_head = false;
  EXPECT_THAT(hub_shapes(untied).at("lm_head.weight"), ElementsAre(128256, 2048));
}

// The parts of a fused parameter follow one another from row 0 (column 0 of a vector) to the end.
TEST(Parameters, HubPartsCoverEveryRowOnce) {
  ModelSpec biased = llama_1b();
  biased.attention_bias = biased.mlp_bias = true;
  for (const ModelSpec& model : {gpt2_124m(), llama_1b(), biased})
    for (const LayerDecl& layer : declare_layers(model))
      for (size_t index = 0; index < layer.parameters.size(); ++index) {
        const ParameterDecl& parameter = layer.parameters[index];
        if (static_cast<int>(index) == layer.tied_parameter) {
          EXPECT_TRUE(parameter.hub.empty());
          continue;
        }
        int64_t next = 0;
        for (const HubPart& part : parameter.hub) {
          EXPECT_EQ(part.begin, next) << part.name;
          next += part.count;
        }
        EXPECT_EQ(next, parameter.matrix ? parameter.rows : parameter.cols) << parameter.name;
      }
}

TEST(Parameters, QueryKeyValueAndGateUpInOrder) {
  const ModelSpec model = llama_1b();
  const ParameterDecl qkv =
      attention_parameter_table(model, 0)[static_cast<size_t>(attention_parameters(model).qkv_weight)];
  EXPECT_EQ(qkv.rows, 2048 + 512 + 512);
  EXPECT_EQ(qkv.hub[1].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(qkv.hub[1].begin, 2048);
  EXPECT_EQ(qkv.hub[2].begin, 2560);
  const ParameterDecl up = mlp_parameter_table(model, 0)[static_cast<size_t>(mlp_parameters(model).up_weight)];
  EXPECT_EQ(up.rows, 2 * 8192);
  EXPECT_EQ(up.hub[0].name, "model.layers.0.mlp.gate_proj.weight");
  EXPECT_EQ(up.hub[1].begin, 8192);
}

// A tensor-parallel rank has its heads of q, of k and of v, and the same channels of gate and up.
TEST(Parameters, FusedProjectionsAreSplitBlockByBlock) {
  ModelSpec biased = llama_1b();
  biased.attention_bias = biased.mlp_bias = true;
  for (const char* name : {"qkv.weight", "qkv.bias"}) {
    EXPECT_THAT(named(gpt2_124m(), name).split_blocks, ElementsAre(768, 768, 768));
    EXPECT_THAT(named(biased, name).split_blocks, ElementsAre(2048, 512, 512));
  }
  for (const char* name : {"up.weight", "up.bias"}) {
    EXPECT_THAT(named(gpt2_124m(), name).split_blocks, ElementsAre());
    EXPECT_THAT(named(biased, name).split_blocks, ElementsAre(8192, 8192));
  }
  for (const char* name : {"output.weight", "down.weight", "embedding.token.weight"})
    EXPECT_THAT(named(biased, name).split_blocks, ElementsAre());
}

// The built-in decay rule: matrices, tables included, decay; norms and biases do not.
TEST(Parameters, MatricesDecay) {
  for (const LayerDecl& layer : declare_layers(gpt2_124m()))
    for (const ParameterDecl& parameter : layer.parameters) {
      const bool vector = parameter.name.ends_with(".bias") || parameter.name.ends_with("norm.weight");
      EXPECT_EQ(parameter.matrix, !vector) << parameter.name;
      EXPECT_EQ(parameter.rows == 1, vector) << parameter.name;
    }
}

TEST(Parameters, InitialValues) {
  for (const ModelSpec& model : {gpt2_124m(), llama_1b()})
    for (const LayerDecl& layer : declare_layers(model))
      for (const ParameterDecl& parameter : layer.parameters) {
        Init wanted = Init::kNormal;
        if (parameter.name.ends_with("norm.weight")) wanted = Init::kOnes;
        if (parameter.name.ends_with(".bias")) wanted = Init::kZeros;
        if (parameter.name.ends_with("output.weight") || parameter.name.ends_with("down.weight"))
          wanted = Init::kNormalResidual;
        EXPECT_EQ(parameter.init, wanted) << parameter.name;
      }
}

// Tensor parallelism: outputs of the first product are split by rows, inputs of the second by columns, tables by rows
// that need not divide. What is whole on every rank has a partial gradient.
TEST(Parameters, Partitions) {
  for (const LayerDecl& layer : declare_layers(gpt2_124m()))
    for (const ParameterDecl& parameter : layer.parameters) {
      const std::string& name = parameter.name;
      Partition wanted = Partition::kReplicated;
      if (name.ends_with("qkv.weight") || name.ends_with("up.weight")) wanted = Partition::kRows;
      if (name.ends_with("qkv.bias") || name.ends_with("up.bias") || name.ends_with("output.weight") ||
          name.ends_with("down.weight"))
        wanted = Partition::kCols;
      if (name.ends_with("token.weight") || name.ends_with("position.weight")) wanted = Partition::kTableRows;
      EXPECT_EQ(parameter.partition, wanted) << name;
      EXPECT_EQ(parameter.partial_over_tp, wanted == Partition::kReplicated) << name;
    }
}

TEST(Share, SharesDifferByAtMostOneAndCoverAll) {
  for (const int64_t size : {0, 1, 7, 31, 97, 50257})
    for (const int64_t parts : {1, 2, 3, 6, 7}) {
      int64_t end = 0;
      for (int64_t part = 0; part < parts; ++part) {
        const Share share = share_of(size, parts, part);
        EXPECT_EQ(share.begin, end);
        EXPECT_TRUE(share.count == size / parts || share.count == (size + parts - 1) / parts);
        end = share.begin + share.count;
      }
      EXPECT_EQ(end, size);
    }
}

TEST(Parameters, NamesAreUniqueAndIndicesNameThem) {
  for (const ModelSpec& model : {gpt2_124m(), llama_1b()}) {
    std::set<std::string> names;
    const std::vector<LayerDecl> layers = declare_layers(model);
    for (const LayerDecl& layer : layers)
      for (size_t index = 0; index < layer.parameters.size(); ++index) {
        const std::string& name = layer.parameters[index].name;
        EXPECT_EQ(names.insert(name).second, static_cast<int>(index) != layer.tied_parameter) << name;
      }
    EXPECT_EQ(layers[1].parameters[static_cast<size_t>(attention_parameters(model).output_weight)].name,
              "attention.0.output.weight");
    EXPECT_EQ(layers[2].parameters[static_cast<size_t>(mlp_parameters(model).down_weight)].name, "mlp.0.down.weight");
    EXPECT_EQ(layers.back().parameters[static_cast<size_t>(head_parameters(model).weight)].name,
              "embedding.token.weight");
    EXPECT_EQ(layers.back().tied_parameter, head_parameters(model).weight);
    EXPECT_EQ(attention_parameters(model).qkv_bias >= 0, model.attention_bias);
    EXPECT_EQ(embedding_parameters(model).position >= 0, model.positions == PositionKind::kLearned);
  }
}

}  // namespace
}  // namespace strata

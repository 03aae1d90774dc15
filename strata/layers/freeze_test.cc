// SPDX-License-Identifier: Apache-2.0
#include "strata/layers/freeze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "strata/base/testing.h"
#include "strata/spec/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ModelSpec small_gpt2() {
  ModelSpec model = tiny_gpt2();
  model.ffn = 64;
  return model;
}

ModelSpec small_llama() { return llama_shaped(tiny_gpt2(), 2, 64); }

std::string refusal(const ModelSpec& model, const std::vector<std::string>& patterns) {
  return error_message(ErrorKind::kBadInput, [&] { declare_layers(model, patterns); });
}

// What the table says of backward, as "attention.0.qkv input", ...
std::vector<std::string> backward_of(const LayerDecl& layer) {
  std::vector<std::string> parts;
  for (const SegmentDecl& segment : layer.segments) {
    if (segment.on_demand) continue;  // runs only as a part of another segment
    if (!segment.backward_input.empty()) parts.push_back(fmt::format("{} input", segment.name));
    if (!segment.backward_weight.empty()) parts.push_back(fmt::format("{} weight", segment.name));
    if (!segment.backward.empty()) parts.push_back(fmt::format("{} both", segment.name));
  }
  return parts;
}

// Otherwise freezing would take away what a trained parameter needs.
TEST(Freeze, GradientReadsAreWhatTheWeightPartReads) {
  for (const ModelSpec& model : {small_gpt2(), small_llama()})
    for (const LayerDecl& layer : declare_layers(model))
      for (const SegmentDecl& segment : layer.segments) {
        if (segment.backward_weight.empty()) continue;
        std::set<int> all;
        for (int index : segment.parameters) {
          ASSERT_TRUE(segment.gradient_reads.contains(index)) << layer.parameters[index].name;
          all.insert(segment.gradient_reads.at(index).begin(), segment.gradient_reads.at(index).end());
        }
        const std::vector<int>& reads = segment.backward_weight.reads;
        EXPECT_EQ(all, std::set<int>(reads.begin(), reads.end())) << layer.name << "." << segment.name;
      }
}

TEST(Freeze, MatchesEitherName) {
  const std::vector<LayerDecl> layers = declare_layers(small_gpt2(), {"mlp.1.*", "transformer.h.0.ln_1.*"});
  EXPECT_THAT(frozen_parameters(layers),
              ElementsAre("attention.0.norm.weight", "attention.0.norm.bias", "mlp.1.norm.weight", "mlp.1.norm.bias",
                          "mlp.1.up.weight", "mlp.1.up.bias", "mlp.1.down.weight", "mlp.1.down.bias"));
  EXPECT_EQ(count_frozen_parameters(layers), 4 * 32 + 2 * 64 * 32 + 64 + 32);
  EXPECT_THAT(frozen_parameters(declare_layers(small_gpt2(), {})), IsEmpty());
}

TEST(Freeze, ATiedTableIsFrozenAtBothEnds) {
  const std::vector<LayerDecl> layers = declare_layers(small_gpt2(), {"transformer.wte.weight"});
  EXPECT_TRUE(layers.back().parameters[layers.back().tied_parameter].frozen);
  EXPECT_EQ(count_frozen_parameters(layers), 97 * 32);
  EXPECT_THAT(frozen_parameters(layers), ElementsAre("embedding.token.weight"));
  EXPECT_THAT(refusal(small_gpt2(), {"lm_head.weight"}), HasSubstr("matches none"));
}

TEST(Freeze, RefusesWhatNamesNothing) {
  EXPECT_THAT(refusal(small_gpt2(), {"mlp.7.up.weight"}),
              AllOf(HasSubstr("model.frozen"), HasSubstr("'mlp.7.up.weight'"), HasSubstr("did you mean mlp.")));
  EXPECT_THAT(refusal(small_gpt2(), {"*", "layer_norm_that_is_not_there"}), HasSubstr("names look like 'attention.0."));
}

// A Hugging Face name that is a part of one of our tensors.
TEST(Freeze, RefusesAPartOfATensor) {
  const std::string layer = "model.layers.1.self_attn.";
  EXPECT_THAT(refusal(small_llama(), {layer + "q_proj.weight", layer + "v_proj.weight"}),
              AllOf(HasSubstr("q_proj.weight, "), HasSubstr("v_proj.weight and "),
                    HasSubstr("k_proj.weight are one tensor"), HasSubstr("attention.1.qkv.weight")));
  EXPECT_THAT(frozen_parameters(declare_layers(small_llama(), {layer + "?_proj.weight"})),
              ElementsAre("attention.1.qkv.weight", "attention.1.output.weight"));
}

TEST(Freeze, RefusesToTrainNothing) {
  EXPECT_THAT(refusal(small_gpt2(), {"*"}), AllOf(HasSubstr("nothing to train"), HasSubstr("all 20768 parameters")));
}

// Backward ends at the lowest layer that is trained.
TEST(Freeze, NothingGoesBackwardBelowWhatIsTrained) {
  const std::vector<LayerDecl> layers =
      declare_layers(small_gpt2(), {"embedding.*", "attention.?.*", "mlp.0.*", "mlp.1.norm.*", "mlp.1.up.*"});
  for (int layer : {0, 1, 2, 3}) {
    EXPECT_THAT(backward_of(layers[layer]), IsEmpty()) << layer;
    EXPECT_EQ(layers[layer].output_gradient, -1) << layer;
    EXPECT_EQ(layers[layer].input_gradient, -1) << layer;
  }
  EXPECT_THAT(backward_of(layers[4]), ElementsAre("down weight"));
  EXPECT_EQ(layers[4].input_gradient, -1);
  EXPECT_GE(layers[4].output_gradient, 0);
  EXPECT_GE(layers[5].input_gradient, 0);
  // One form or the other runs.
  EXPECT_THAT(backward_of(layers[5]), ElementsAre("loss both", "norm both", "tile-loss both"));
}

// With trained layers below, the input part stays; the weight part reads what is left for it.
TEST(Freeze, KeepsTheWayToWhatIsTrainedBelow) {
  const std::vector<LayerDecl> layers = declare_layers(small_gpt2(), {"mlp.1.*", "attention.1.*weight"});
  EXPECT_THAT(backward_of(layers[4]), ElementsAre("up input", "down input"));
  EXPECT_THAT(backward_of(layers[3]),
              ElementsAre("qkv input", "qkv weight", "core input", "output input", "output weight"));
  using namespace attention_tensor;
  EXPECT_THAT(layers[3].segments[attention_segment::kQkv].backward_weight.reads,
              ElementsAre(kX, kStats, kDqkv, kDnormed));
  EXPECT_THAT(layers[3].segments[attention_segment::kOutput].backward_weight.reads, ElementsAre(kDy));
}

// Only the token table's side of the model is trained: backward goes all the way.
TEST(Freeze, AnEmbeddingAtTheBottomKeepsEveryInputPart) {
  const std::vector<LayerDecl> layers = declare_layers(small_llama(), {"attention.*", "mlp.*", "head.*"});
  for (int layer : {1, 2, 3, 4}) {
    EXPECT_THAT(backward_of(layers[layer]), Not(IsEmpty()));
    for (const SegmentDecl& segment : layers[layer].segments) EXPECT_TRUE(segment.backward_weight.empty());
  }
  EXPECT_THAT(backward_of(layers[0]), ElementsAre("embed weight"));
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/flops.h"

#include <gtest/gtest.h>

#include <array>

#include "strata/layers/freeze.h"

namespace strata {
namespace {

// Grouped queries: 4 query heads, 2 kv heads of 3 channels.
ModelSpec tiny_spec() {
  ModelSpec spec;
  spec.family = "llama";
  spec.vocab = 11;
  spec.hidden = 8;
  spec.num_blocks = 2;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 3;
  spec.ffn = 10;
  spec.activation = ActivationKind::kSwiglu;
  spec.tied_head = true;
  return spec;
}

// By hand, forward. Multiplications per token and block: qkv 8 * (4 + 2 + 2) * 3 = 192, output 12 * 8 = 96,
// gate and up 8 * 20 = 160, down 10 * 8 = 80: 528. Head 8 * 11 = 88. Per token 2 * 528 + 88 = 1144, 2288 flops.
// Attention per pair and block: 4 heads * 3 channels * 2 products * 2 = 48 flops; 2 blocks 96.
TEST(StepFlops, EqualsAHandCountOfOneSequence) {
  // 5 tokens: 5 * 2288 = 11440; 1 + 2 + 3 + 4 + 5 = 15 pairs: 1440. Forward 12880, with backward three times that.
  EXPECT_EQ(step_flops(declare_layers(tiny_spec()), std::array<int64_t, 1>{5}), 3.0 * 12880);
}

TEST(StepFlops, PackedSequencesDoNotSeeEachOther) {
  // 2 + 0 + 3 tokens: the products of 5 tokens, 3 + 0 + 6 = 9 pairs: 864.
  EXPECT_EQ(step_flops(declare_layers(tiny_spec()), std::array<int64_t, 3>{2, 0, 3}), 3.0 * (11440 + 864));
}

TEST(StepFlops, TyingChangesNothing) {
  ModelSpec untied = tiny_spec();
  untied.tied_head = false;
  EXPECT_EQ(step_flops(declare_layers(untied), std::array<int64_t, 1>{5}),
            step_flops(declare_layers(tiny_spec()), std::array<int64_t, 1>{5}));
}

TEST(StepFlops, AnMlpWithoutGateHasOneMatrixUp) {
  ModelSpec spec = tiny_spec();
  spec.family = "gpt2";
  spec.activation = ActivationKind::kGeluTanh;
  // 80 multiplications less per token and block.
  EXPECT_EQ(step_flops(declare_layers(spec), std::array<int64_t, 1>{5}), 3.0 * (12880 - 5 * 2 * 2 * 80));
}

// Of 5 tokens; forward is 12880 as above.
double flops_with_frozen(const std::vector<std::string>& frozen) {
  return step_flops(declare_layers(tiny_spec(), frozen), std::array<int64_t, 1>{5});
}

// Without their gradients, 5 * 2 flops for each of their elements; the way to what is trained below stays.
TEST(StepFlops, FrozenMatricesHaveNoGradient) {
  EXPECT_EQ(flops_with_frozen({"mlp.1.down.weight"}), 3.0 * 12880 - 5 * 2 * 80);
  EXPECT_EQ(flops_with_frozen({"mlp.*", "attention.*", "head.*"}), 3.0 * 12880 - 5 * 2 * 2 * 528);
  EXPECT_EQ(flops_with_frozen({"*.norm.weight"}), 3.0 * 12880);
}

// Backward ends at what is trained: nothing of the first block, of which everything is frozen.
TEST(StepFlops, NothingGoesBackwardBelowWhatIsTrained) {
  const double block = 5 * 2 * 528 + 15 * 48;  // forward
  const double head_weight = 5 * 2 * 88;       // the gradient of the tied table
  EXPECT_EQ(flops_with_frozen({"embedding.*", "attention.0.*", "mlp.0.*"}), 3.0 * 12880 - 2 * block - head_weight);
  // The head's norm alone: forward, and the gradient of the head's input.
  EXPECT_EQ(flops_with_frozen({"embedding.*", "attention.*", "mlp.*"}), 12880 + 5 * 2 * 88);
}

TEST(StepFlops, NoTokensNoFlops) { EXPECT_EQ(step_flops(declare_layers(tiny_spec()), {}), 0.0); }

// GPT-2 small, 2 * 512 tokens: 12 blocks * 7077888 + 768 * 50257 = 123532032 multiplications per token;
// attention 12 * 768 * 4 flops for each of 2 * 131328 pairs. Beyond 32-bit range.
TEST(StepFlops, Gpt2Small) {
  ModelSpec spec;
  spec.family = "gpt2";
  spec.vocab = 50257;
  spec.hidden = 768;
  spec.num_blocks = 12;
  spec.heads = spec.kv_heads = 12;
  spec.head_dim = 64;
  spec.ffn = 3072;
  const double products = 2.0 * 1024 * 123532032;
  const double attention = 36864.0 * 262656;
  EXPECT_EQ(step_flops(declare_layers(spec), std::array<int64_t, 2>{512, 512}), 3 * (products + attention));
}

}  // namespace
}  // namespace strata

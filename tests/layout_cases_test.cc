// SPDX-License-Identifier: Apache-2.0
// More failures that users of other trainers have met with many ranks (docs/cases.md): sizes that layouts must not
// show, frozen tensors under every layout, grouped queries, dropout and recomputation. Ranks are threads here; f32.
#include <gmock/gmock.h>

#include "strata/base/error.h"
#include "strata/base/testing.h"
#include "strata/layers/freeze.h"
#include "tests/layout_draw.h"

namespace strata::testing {
namespace {

using ::testing::HasSubstr;

// Eight sequences, the first with as many tokens as there may be, for eight ranks.
PlanDraw long_draw(const Degrees& degrees, int64_t seq) {
  PlanDraw draw = draw_of({}, 1);
  draw.options.model.max_positions = draw.options.seq = seq;
  draw.documents.clear();
  for (uint64_t index = 0; index < 8; ++index)
    draw.documents.push_back(
        make_documents(1, static_cast<int>(seq - static_cast<int64_t>(index) * 9 % seq), 97, index)[0]);
  set_degrees(draw, degrees, 1);
  return draw;
}

// B6, B84: loss, norm and weights do not depend on how many ranks share a sequence, also of a length that none of them
// divides.
TEST(LayoutCases, ContextParallelismDoesNotScaleTheLoss) {
  for (const int64_t seq : {64, 15}) {
    const PlanCourse one = run_one_rank(long_draw({}, seq), 3, kLearningRate);
    for (const Degrees& degrees :
         {Degrees{1, 1, 8}, Degrees{1, 1, 4, 1, 2}, Degrees{1, 1, 2, 2, 4}, Degrees{1, 1, 1, 3, 8}}) {
      const PlanDraw draw = long_draw(degrees, seq);
      SCOPED_TRACE(fmt::format("{} seq {}", draw.text, seq));
      expect_close(run_plan(draw, 3, kLearningRate), one);
    }
  }
}

// Trains as one rank with the same frozen tensors, which keep every bit.
void expect_frozen(PlanDraw draw, const std::vector<std::string>& frozen) {
  SCOPED_TRACE(fmt::format("{} frozen {}", draw.text, fmt::join(frozen, " ")));
  draw.options.frozen = frozen;
  const PlanCourse course = run_plan(draw, 3, kLearningRate);
  expect_close(course, run_one_rank(draw, 3, kLearningRate));
  const std::vector<std::string> names = frozen_parameters(declare_layers(draw.options.model, frozen));
  ASSERT_FALSE(names.empty());
  for (const auto& [name, before] : course.before)
    EXPECT_EQ(course.after.at(name) == before, std::ranges::count(names, name) > 0) << name;
}

// B31: one layer, and all but one bias.
TEST(LayoutCases, FrozenTensorsUnderEveryZeroStage) {
  for (int zero : {0, 1, 2, 3})
    for (const Degrees& degrees : {Degrees{1, 1, 4, zero}, Degrees{2, 1, 2, zero}}) {
      expect_frozen(draw_of(degrees, 1), {"mlp.0.*"});
      expect_frozen(draw_of(degrees, 1), {"embedding.*", "attention.*", "mlp.0.*", "mlp.1.norm.*", "mlp.1.up.*",
                                          "mlp.1.down.weight", "head.*"});
    }
}

// B72: all of the first of two stages, and all but the first.
TEST(LayoutCases, TrainedTensorsInOnePipelineStage) {
  for (const Degrees& degrees : {Degrees{1, 2, 1, 0}, Degrees{1, 2, 2, 1}, Degrees{2, 2, 1, 2}}) {
    expect_frozen(draw_of(degrees, 2, false), {"embedding.*", "attention.0.*", "mlp.0.*"});
    expect_frozen(draw_of(degrees, 2, false), {"attention.1.*", "mlp.1.*", "head.*"});
    expect_frozen(draw_of(degrees, 2), {"embedding.*", "attention.0.*", "mlp.0.*"});
  }
}

// B66: of 8 query heads over 2 key-value heads, 1 or 2 ranks have whole groups; 4 and 8 do not.
TEST(LayoutCases, GroupedQueriesSplitByKeyValueHeads) {
  PlanDraw draw = draw_of({}, 1, false);
  draw.options.model = tiny_llama();
  draw.options.model.heads = 8;
  draw.options.model.head_dim = 4;
  const auto with_tp = [&](int64_t tp) {
    set_degrees(draw, {tp, 1, 2, 1}, 1);
    return draw;
  };
  const PlanCourse one = run_one_rank(draw, 3, kLearningRate);
  for (const int64_t tp : {1, 2}) expect_close(run_plan(with_tp(tp), 3, kLearningRate), one);
  for (const int64_t tp : {4, 8})
    EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { validate_plan(with_tp(tp).plan, draw.options.model); }),
                HasSubstr(fmt::format("2 kv_heads over tp {}; tp may be 1, 2", tp)));
}

// B69: what is computed again, also of other ranks' parts, drops the same.
TEST(LayoutCases, DropoutIsTheSameInRecomputation) {
  for (const Degrees& degrees : {Degrees{2, 1, 1}, Degrees{1, 2, 1}, Degrees{1, 1, 1, 0, 2}, Degrees{2, 2, 2, 3}})
    for (const bool sequence_parallel : {false, true}) {
      PlanDraw draw = draw_of(degrees, 2);
      ModelSpec& model = draw.options.model;
      model.attention_dropout = model.residual_dropout = model.embedding_dropout = 0.5;
      draw.plan.sequence_parallel = sequence_parallel;
      SCOPED_TRACE(draw.text);
      const PlanCourse kept = run_plan(draw, 2, kLearningRate);
      for (const ActivationPolicy policy :
           {ActivationPolicy::kSelective, ActivationPolicy::kFull, ActivationPolicy::kPartitioned}) {
        for (LayerPlan& layer : draw.plan.layers) layer.activations = policy;
        const PlanCourse course = run_plan(draw, 2, kLearningRate);
        EXPECT_EQ(course.losses, kept.losses);
        EXPECT_EQ(course.after, kept.after);
      }
    }
}

}  // namespace
}  // namespace strata::testing

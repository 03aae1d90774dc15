// SPDX-License-Identifier: Apache-2.0
#include "strata/ckpt/states_in_memory.h"

#include <gtest/gtest.h>

#include "strata/ckpt/testing.h"

namespace strata {
namespace {

CompileInput with_ranks(Precision precision, int64_t dp, int zero) {
  CompileInput input = compile_input(tiny_gpt2(), precision);
  input.plan.num_ranks = dp;
  for (LayerPlan& layer : input.plan.layers) {
    layer.dp = dp;
    layer.zero = zero;
  }
  input.rank = 1;
  return input;
}

struct Elements {
  int64_t values = 0, rounded = 0, of_states = 0;
};

Elements count(const TinyRun& run) {
  Elements elements;
  for (const StatePart& part : list_state_parts(run.states())) {
    if (part.state != kParametersState) elements.of_states += part.part.count;
    if (part.state == kParametersState && part.values != nullptr) elements.values += part.part.count;
    if (part.rounded != nullptr) elements.rounded += part.part.count;
  }
  return elements;
}

// All rounded parameters are held below ZeRO 3, masters and moments are owned: about a half (chunks are padded).
TEST(StatesInMemory, HeldParametersAndOwnedStates) {
  const int64_t all = count_parameters(declare_layers(tiny_gpt2()));
  const auto near_half = [&](int64_t elements) { return elements > all * 45 / 100 && elements < all * 55 / 100; };
  for (int zero : {0, 1, 2, 3}) {
    const Elements f32 = count(TinyRun(with_ranks(Precision::kF32, 2, zero)));
    const Elements bf16 = count(TinyRun(with_ranks(Precision::kBF16, 2, zero)));
    EXPECT_EQ(f32.rounded, 0);
    if (zero < 3) {
      EXPECT_EQ(f32.values, all);
      EXPECT_EQ(bf16.rounded, all);
    } else {
      EXPECT_TRUE(near_half(f32.values)) << f32.values;
      EXPECT_EQ(bf16.rounded, f32.values);
    }
    if (zero == 0) {
      EXPECT_EQ(bf16.values, all);
      EXPECT_EQ(f32.of_states, 2 * all);
    } else {
      EXPECT_TRUE(near_half(bf16.values)) << bf16.values;
      EXPECT_TRUE(near_half(f32.of_states / 2)) << f32.of_states;
    }
    EXPECT_EQ(bf16.of_states, f32.of_states);
  }
}

TEST(StatesInMemory, EvaluationHoldsParametersAlone) {
  for (Precision precision : {Precision::kF32, Precision::kBF16}) {
    const Elements elements = count(TinyRun(compile_input(tiny_gpt2(), precision), {ProgramKind::kEvaluation}));
    const int64_t all = count_parameters(declare_layers(tiny_gpt2()));
    EXPECT_EQ(elements.of_states, 0);
    EXPECT_EQ(precision == Precision::kF32 ? elements.values : elements.rounded, all);
  }
}

TEST(StatesInMemory, ValuesAreStoredAsBoth) {
  float values[4] = {};
  BF16 rounded[4] = {};
  StatePart part;
  part.part = whole_tensor(2, 2);
  part.values = values;
  part.rounded = rounded;
  const float given[2] = {1.00390625f, -3.0f};  // the first lies between two bf16 values
  store_values(part, 1, given);
  EXPECT_EQ(values[1], 1.00390625f);
  EXPECT_EQ(to_float(rounded[1]), 1.0f);
  EXPECT_EQ(to_float(rounded[2]), -3.0f);
  EXPECT_EQ(values[0], 0.0f);
  EXPECT_EQ(values[3], 0.0f);
}

TEST(StatesInMemoryDeathTest, ValuesBeyondThePartAreABug) {
  StatePart part;
  part.part = whole_tensor(1, 2);
  const float given[2] = {};
  EXPECT_DEATH(store_values(part, 1, given), "2 values at 1 of a part of 2");
}

}  // namespace
}  // namespace strata

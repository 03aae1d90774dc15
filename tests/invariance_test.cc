// SPDX-License-Identifier: Apache-2.0
// Any plan gives the same training (docs/numerics.md): bit-equal where only order and placement change, close where a
// sum is split.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/model_harness.h"

namespace strata::testing {
namespace {

// 20 steps of SGD at lr 0.02 in f32: orders of summation differ by up to 2e-6 (larger rates amplify it: 5e-5 at 0.1).
constexpr double kClose = 1e-5;

HarnessOptions sgd_options(const ModelSpec& model) {
  HarnessOptions options;
  options.model = model;
  options.optimizer.kind = OptimizerKind::kSgd;
  options.optimizer.clip_norm = 0;
  options.optimizer.weight_decay = 0;
  return options;
}

std::vector<Document> unequal_documents() {
  std::vector<Document> documents;
  for (int length : {1, 3, 16, 7, 2, 11, 5, 13})
    documents.push_back(make_documents(1, length, 97, static_cast<uint64_t>(length))[0]);
  return documents;
}

struct Course {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<float>> weights;
};

Course run_steps(HarnessOptions options, const std::vector<Document>& documents, int steps, double lr) {
  ModelHarness harness(options);
  harness.fill(documents);
  Course run;
  for (int step = 0; step < steps; ++step) {
    run.losses.push_back(harness.step(lr));
    run.norms.push_back(std::sqrt(harness.scalars().norm_squared));
  }
  run.weights = harness.weights();
  return run;
}

void expect_close(const Course& run, const Course& reference, double tolerance) {
  for (size_t step = 0; step < reference.losses.size(); ++step) {
    EXPECT_NEAR(run.losses[step], reference.losses[step], tolerance * reference.losses[step])
        << "loss of step " << step + 1;
    EXPECT_NEAR(run.norms[step], reference.norms[step], tolerance * reference.norms[step])
        << "norm of step " << step + 1;
  }
  for (const auto& [name, weight] : reference.weights)
    EXPECT_LT(relative_difference(run.weights.at(name), weight), tolerance) << name;
}

class Models : public ::testing::TestWithParam<bool> {
 protected:
  ModelSpec model() const { return GetParam() ? tiny_llama() : tiny_gpt2(); }
};

// B1, B2, B3, B5, B7: losses, norms and weights do not depend on how the global batch is cut, with documents of unequal
// length.
TEST_P(Models, AccumulationIsNotVisible) {
  HarnessOptions options = sgd_options(model());
  options.micro_batch = 8;
  const Course reference = run_steps(options, unequal_documents(), 20, 0.02);
  for (const auto& [micro, accumulation] : std::vector<std::pair<int64_t, int64_t>>{{4, 2}, {2, 4}, {1, 8}}) {
    options.micro_batch = micro;
    options.accumulation = accumulation;
    expect_close(run_steps(options, unequal_documents(), 20, 0.02), reference, kClose);
  }
}

// B3: the logged loss is what an evaluation of the same tokens gives before the step.
TEST_P(Models, LoggedLossIsTheLossBeforeTheStep) {
  for (int64_t accumulation : {1, 8}) {
    HarnessOptions options = sgd_options(model());
    options.micro_batch = 8 / accumulation;
    options.accumulation = accumulation;
    ModelHarness harness(options);
    harness.fill(unequal_documents());
    const double before = harness.evaluate();
    EXPECT_NEAR(harness.step(0.1), before, 1e-6 * before);
    EXPECT_LT(harness.evaluate(), before);
  }
}

// B7: one SGD step of lr 1 moves the weights by exactly the gradient, whatever the accumulation.
TEST_P(Models, SgdMovesByTheGradient) {
  HarnessOptions options = sgd_options(model());
  options.micro_batch = 2;
  options.accumulation = 4;
  ModelHarness harness(options);
  harness.fill(unequal_documents());
  const auto before = harness.weights();
  harness.step(1.0);
  const auto gradients = harness.gradients();
  for (const auto& [name, weight] : harness.weights())
    for (size_t index = 0; index < weight.size(); ++index)
      ASSERT_FLOAT_EQ(weight[index], before.at(name)[index] - gradients.at(name)[index]) << name;
}

// B69 and more: recomputing gives the same bits, dropout included.
TEST_P(Models, RecomputeIsBitEqual) {
  for (Precision precision : {Precision::kF32, Precision::kBF16}) {
    std::vector<std::vector<std::byte>> states;
    std::vector<double> losses;
    for (ActivationPolicy policy : {ActivationPolicy::kKeep, ActivationPolicy::kSelective, ActivationPolicy::kFull}) {
      HarnessOptions options;
      options.model = model();
      options.model.attention_dropout = options.model.residual_dropout = options.model.embedding_dropout = 0.5f;
      options.precision = precision;
      options.activations = policy;
      options.micro_batch = 4;
      options.accumulation = 2;
      ModelHarness harness(options);
      harness.fill(unequal_documents());
      for (int step = 0; step < 3; ++step) losses.push_back(harness.step(1e-2));
      states.push_back(harness.state_bytes());
    }
    EXPECT_EQ(states[0], states[1]);
    EXPECT_EQ(states[0], states[2]);
    EXPECT_EQ(losses[0], losses[3]);
    EXPECT_EQ(losses[2], losses[8]);
  }
}

TEST_P(Models, SameSeedSameBits) {
  HarnessOptions options;
  options.model = model();
  options.model.residual_dropout = 0.1f;
  options.micro_batch = 8;
  std::vector<std::vector<std::byte>> states;
  for (int run = 0; run < 2; ++run) {
    ModelHarness harness(options);
    harness.fill(unequal_documents());
    for (int step = 0; step < 3; ++step) harness.step(1e-2);
    states.push_back(harness.state_bytes());
  }
  EXPECT_EQ(states[0], states[1]);
}

TEST_P(Models, ThreadsAreClose) {
  HarnessOptions options = sgd_options(model());
  options.micro_batch = 8;
  options.threads = 1;
  const Course reference = run_steps(options, unequal_documents(), 20, 0.02);
  for (int threads : {2, 3}) {
    options.threads = threads;
    expect_close(run_steps(options, unequal_documents(), 20, 0.02), reference, kClose);
  }
}

// A micro-batch or a whole step may have no token: it contributes nothing, and nothing becomes NaN. B61.
TEST_P(Models, EmptyMicroBatchesContributeNothing) {
  HarnessOptions options = sgd_options(model());
  options.micro_batch = 4;
  options.accumulation = 4;  // eight documents fill two
  const Course run = run_steps(options, unequal_documents(), 3, 0.02);
  options.accumulation = 2;
  expect_close(run, run_steps(options, unequal_documents(), 3, 0.02), kClose);
}

TEST_P(Models, UncountedTokensContributeNothing) {
  HarnessOptions options = sgd_options(model());
  options.micro_batch = 1;
  options.accumulation = 2;
  ModelHarness with(options), without(options);
  const std::vector<Document> documents = make_documents(2, 9, 97, 5);
  with.fill(documents);
  for (int32_t& target : with.sheet().micro_batches[1].targets) target = -1;
  with.sheet().counted = 9;
  without.fill({documents[0]});
  EXPECT_EQ(with.step(0.1), without.step(0.1));
  for (const auto& [name, weight] : without.weights())
    EXPECT_LT(relative_difference(with.weights().at(name), weight), 1e-6) << name;
}

// B15: 256 identical micro-batches in bf16 give one micro-batch's gradient: accumulation is in f32.
TEST_P(Models, ManyMicroBatchesInBf16DoNotVanish) {
  HarnessOptions options = sgd_options(model());
  options.precision = Precision::kBF16;
  ModelHarness one(options);
  const std::vector<Document> document = make_documents(1, 16, 97, 7);
  one.fill(document);
  one.step(0.0);
  options.accumulation = 256;
  ModelHarness many(options);
  many.fill(std::vector<Document>(256, document[0]));
  many.step(0.0);
  // The 1/256 in front of each summand is a power of two, but it scales gradients that are stored in bf16 only where
  // that is exact too; f32 sums of 256 equal numbers round by at most 256 * 2^-24.
  for (const auto& [name, gradient] : one.gradients())
    EXPECT_LT(relative_difference(many.gradients().at(name), gradient), 1e-4) << name;
}

// B16: with bf16 weights a tiny learning rate moves nearly all master weights.
TEST_P(Models, MasterWeightsMove) {
  HarnessOptions options;
  options.model = model();
  options.precision = Precision::kBF16;
  options.micro_batch = 4;
  ModelHarness harness(options);
  harness.fill(make_documents(4, 16, 97, 3));
  const auto before = harness.weights();
  for (int step = 0; step < 50; ++step) harness.step(1e-5);
  int64_t changed = 0, total = 0;
  for (const auto& [name, weight] : harness.weights())
    for (size_t index = 0; index < weight.size(); ++index, ++total)
      changed += weight[index] != before.at(name)[index] ? 1 : 0;
  // Position rows and tokens that do not occur have no gradient but decay.
  EXPECT_GT(static_cast<double>(changed), 0.99 * static_cast<double>(total));
}

// B20: with no gradient, one step shrinks matrices by 1 - lr * decay and leaves vectors alone.
TEST_P(Models, OnlyMatricesDecay) {
  HarnessOptions options;
  options.model = model();
  options.optimizer.weight_decay = 0.1;
  ModelHarness harness(options);
  harness.fill(make_documents(1, 8, 97, 3));
  for (MicroBatch& batch : harness.sheet().micro_batches)
    for (int32_t& target : batch.targets) target = -1;
  const auto before = harness.weights();
  harness.step(0.5);
  for (const LayerDecl& layer : harness.layers())
    for (const ParameterDecl& parameter : layer.parameters) {
      const float factor = parameter.matrix ? 1.0f - 0.5f * 0.1f : 1.0f;
      const auto weights = harness.weights();
      for (size_t index = 0; index < before.at(parameter.name).size(); ++index)
        ASSERT_FLOAT_EQ(weights.at(parameter.name)[index], factor * before.at(parameter.name)[index]) << parameter.name;
    }
}

// B22: a gradient that is not finite changes nothing and names a tensor.
TEST_P(Models, BadGradientSkipsTheUpdate) {
  HarnessOptions options;
  options.model = model();
  ModelHarness harness(options);
  harness.fill(make_documents(1, 8, 97, 3));
  const TensorView weight = harness.executor().parameter(4, 2);  // of mlp.1
  weight.row<float>(0)[0] = std::numeric_limits<float>::infinity();
  const auto before = harness.state_bytes();
  harness.step(0.1);
  EXPECT_FALSE(harness.scalars().finite);
  EXPECT_GE(harness.scalars().first_bad_tensor, 0);
  EXPECT_EQ(harness.state_bytes(), before);
}

// Clipping multiplies the update, not the logged norm.
TEST_P(Models, ClippingBoundsTheStep) {
  HarnessOptions options = sgd_options(model());
  options.optimizer.clip_norm = 0.01;
  ModelHarness harness(options);
  harness.fill(make_documents(1, 8, 97, 3));
  const auto before = harness.weights();
  harness.step(1.0);
  EXPECT_GT(std::sqrt(harness.scalars().norm_squared), 0.01);
  double moved = 0;
  const auto weights = harness.weights();
  for (const auto& [name, weight] : weights) {
    for (size_t index = 0; index < weight.size(); ++index)
      moved += std::pow(static_cast<double>(weight[index]) - before.at(name)[index], 2);
  }
  EXPECT_NEAR(std::sqrt(moved), 0.01, 1e-5);
}

// B24: every precision and optimizer can learn one batch by heart.
TEST_P(Models, OverfitsOneBatch) {
  for (Precision precision : {Precision::kF32, Precision::kBF16})
    for (OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
      HarnessOptions options;
      options.model = model();
      options.precision = precision;
      options.optimizer.kind = kind;
      options.optimizer.momentum = 0.9;
      options.optimizer.weight_decay = 0;
      options.micro_batch = 2;
      ModelHarness harness(options);
      harness.fill(make_documents(2, 12, 97, 3));
      double loss = 0;
      for (int step = 0; step < 200; ++step) {
        loss = harness.step(kind == OptimizerKind::kAdamW ? 1e-2 : 0.1);
        ASSERT_TRUE(std::isfinite(loss)) << step;
      }
      EXPECT_LT(loss, 0.1) << "precision " << static_cast<int>(precision) << " optimizer " << static_cast<int>(kind);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, Models, ::testing::Values(false, true));

}  // namespace
}  // namespace strata::testing

// SPDX-License-Identifier: Apache-2.0
// What several ranks export, load, freeze and evaluate is what one rank does (docs/cases.md). Ranks are threads here.
#include <gtest/gtest.h>

#include <cmath>

#include "strata/hf/model_folder.h"
#include "strata/train/evaluation.h"
#include "tests/ranks_run.h"

namespace strata::testing {
namespace {

using Weights = std::map<std::string, std::vector<float>>;

// Of an exported folder, by name; reading refuses a folder that lacks a tensor or has one of another shape.
Weights weights_of(const TinyRun& run) {
  Trainer trainer(run.config);  // for the model's declaration
  const Workload& workload = trainer.workload();
  Weights weights;
  read_model_weights(
      run.run_folder() / "model", workload.model, workload.layers,
      [&](int layer, int parameter, const TensorView& values) {
        weights[workload.layers[static_cast<size_t>(layer)].parameters[static_cast<size_t>(parameter)].name] =
            copy_values(values);
      });
  return weights;
}

void use_sgd(TinyRun& run) {
  use_many_samples(run);
  run.config.optimizer.kind = OptimizerKind::kSgd;
  run.config.optimizer.lr = 0.1;
  run.config.train.epochs = 0;
  run.config.train.max_steps = 3;
}

// SGD as in PlanInvariance.SgdIsClose. A gradient that is zero but for rounding (attention's key bias) is about 1e-8.
void expect_close_weights(const Weights& weights, const Weights& reference) {
  ASSERT_EQ(weights.size(), reference.size());
  for (const auto& [name, wanted] : reference) {
    const std::vector<float>& found = weights.at(name);
    ASSERT_EQ(found.size(), wanted.size()) << name;
    double difference = 0, norm = 0;
    for (size_t index = 0; index < wanted.size(); ++index) {
      difference += std::pow(static_cast<double>(found[index]) - wanted[index], 2);
      norm += std::pow(static_cast<double>(wanted[index]), 2);
    }
    EXPECT_LT(std::sqrt(difference), 2e-5 * std::sqrt(norm) + 1e-8 * std::sqrt(static_cast<double>(wanted.size())))
        << name;
  }
}

// The vocabulary of 257 divides by no number of ranks. B29, B32.
TEST(RanksModel, ExportIsWhole) {
  TinyRun one;
  use_sgd(one);
  train(one.config);
  const Weights reference = weights_of(one);
  EXPECT_EQ(reference.at("embedding.token.weight").size(), 257u * 32);
  for (const Layout& layout : {Layout{4, 4}, Layout{8, 4, 2, 1}, Layout{6, 2, 1, 3}, Layout{4, 1, 1, 3, false, 2}}) {
    SCOPED_TRACE(text_of(layout));
    TinyRun many;
    use_sgd(many);
    train_ranks(many.config, layout);
    EXPECT_EQ(std::filesystem::file_size(many.run_folder() / "model" / "model.safetensors"),
              std::filesystem::file_size(one.run_folder() / "model" / "model.safetensors"));
    expect_close_weights(weights_of(many), reference);
  }
}

// B29: what four tensor-parallel ranks have exported is the start of a run under any layout.
TEST(RanksModel, ExportStartsAnyLayout) {
  TinyRun source, one;
  use_sgd(source);
  train_ranks(source.config, {4, 4});
  use_sgd(one);
  one.config.model.weights = source.run_folder() / "model";
  train(one.config);
  ASSERT_LT(one.column("loss").front().value, source.column("loss").front().value);
  for (const Layout& layout : {Layout{2, 2}, Layout{4, 4}, Layout{3, 1, 1, 3}, Layout{4, 2, 2, 0}}) {
    SCOPED_TRACE(text_of(layout));
    TinyRun many;
    use_sgd(many);
    many.config.model.weights = one.config.model.weights;
    train_ranks(many.config, layout);
    expect_same_course(many, one);
  }
}

// B30: frozen by one layout, resumed by another, in bf16 too; the exported tensors are the initial ones to the bit.
TEST(RanksModel, FrozenTensorsSurviveAnotherLayout) {
  TinyRun start;
  use_sgd(start);
  start.config.model.frozen = {"embedding.*", "attention.*", "mlp.*"};
  train(start.config);
  const Weights initial = weights_of(start);
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    TinyRun run;
    use_sgd(run);
    run.config.model.precision = precision;
    run.config.model.frozen = {"embedding.*", "attention.1.*"};
    EXPECT_TRUE(train_ranks(run.config, {4, 2, 1, 3, true}, 1).stopped);
    EXPECT_TRUE(train_ranks(run.config, {4, 1, 2, 1}, 2).stopped);
    train_ranks(run.config, {2, 1, 1, 0, false, 2});
    for (const auto& [name, values] : weights_of(run)) {
      std::vector<float> wanted = initial.at(name);
      if (precision == Precision::kBF16)  // frozen tensors have no master
        for (float& value : wanted) value = to_float(to_bf16(value));
      EXPECT_EQ(values == wanted, name.starts_with("embedding.") || name.starts_with("attention.1.")) << name;
    }
  }
}

std::string ten_documents() {
  std::string text;
  for (size_t length = 1; length <= 10; ++length) text += "{\"text\": \"" + std::string(length, 'x') + "\"}\n";
  return text;
}

// B49: ten documents of 1 to 10 targets, each once, whatever the batch and the number of replicas.
TEST(RanksModel, EvaluationCountsEverySampleOnce) {
  std::vector<double> losses;
  for (const int64_t micro : {1, 3, 4, 10})
    for (const Layout& layout : {Layout{1}, Layout{2}, Layout{3}, Layout{4}, Layout{4, 1, 1, 0, false, 2}}) {
      SCOPED_TRACE(fmt::format("{} micro {}", text_of(layout), micro));
      TinyRun run;
      write_test_file(run.folder() / "validation.jsonl", ten_documents());
      run.config.data.validation = {run.folder() / "validation.jsonl"};
      run.config.data.sampling = Sampling::kDocument;
      run.config.batch.micro = micro;
      set_layout(run.config, layout);
      run_ranks(layout.ranks, [&](int rank, Comm& comm) {
        Trainer trainer(run.config, &comm);
        Ranks ranks(&comm);
        const EvaluationResult result = evaluate(trainer.executor(), trainer.workload().evaluation(),
                                                 trainer.workload().input.plan, *trainer.corpus().validation, 0, ranks);
        EXPECT_EQ(result.samples, 10);
        EXPECT_EQ(result.counted, 55);
        if (rank == 0) losses.push_back(result.loss);
      });
      EXPECT_NEAR(losses.back(), losses.front(), 1e-6 * losses.front());  // f32 products of other shapes
    }
}

// Attention's output is combined in f32 and rounded once, as on one rank: single values differ by the last bit of bf16,
// which is what storing them in bf16 changes too. So the course stays as close to that of one rank as this is to f32.
TEST(RanksModel, ContextParallelismInBf16IsWithinItsRounding) {
  const auto course = [](Precision precision, const Layout& layout) {
    TinyRun run;
    use_many_samples(run);
    run.config.model.precision = precision;
    train_ranks(run.config, layout);
    return run.column("loss");
  };
  const auto distance = [](const std::vector<MetricPoint>& a, const std::vector<MetricPoint>& b) {
    double largest = 0;
    for (size_t index = 0; index < b.size(); ++index)
      largest = std::max(largest, std::abs(a[index].value / b[index].value - 1));
    return largest;
  };
  const std::vector<MetricPoint> one = course(Precision::kBF16, {1});
  const double rounding = distance(one, course(Precision::kF32, {1}));
  EXPECT_LT(rounding, 0x1p-8);  // of one value; a loss is a mean of 192
  for (const Layout& layout : {Layout{2, 1, 1, 0, false, 2}, Layout{4, 1, 1, 3, false, 2}, Layout{4, 2, 1, 1, true, 2}})
    EXPECT_LT(distance(course(Precision::kBF16, layout), one), rounding) << text_of(layout);
}

}  // namespace
}  // namespace strata::testing

// SPDX-License-Identifier: Apache-2.0
// Losses, gradients and curves against PyTorch's float64 (tests/golden/README.md).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "strata/hf/model_folder.h"
#include "tests/model_harness.h"

namespace strata::testing {
namespace {

std::string golden_path(const std::string& family, const std::string& file) {
  return std::string(STRATA_GOLDEN) + "/" + family + "/" + file;
}

nlohmann::json read_golden(const std::string& family) {
  std::ifstream file(golden_path(family, "golden.json"));
  return nlohmann::json::parse(file);
}

std::vector<int32_t> read_ids(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<int32_t> ids(static_cast<size_t>(file.tellg()) / 4);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(ids.data()), static_cast<std::streamsize>(4 * ids.size()));
  return ids;
}

std::vector<Document> rows_of(const std::vector<int32_t>& ids, size_t first_row, size_t count) {
  std::vector<Document> rows;
  for (size_t row = first_row; row < first_row + count; ++row)
    rows.emplace_back(ids.begin() + 33 * row, ids.begin() + 33 * (row + 1));
  return rows;
}

// The harness on a golden model; weights are the family's.
std::unique_ptr<ModelHarness> golden_harness(const std::string& family, HarnessOptions options) {
  options.model = read_model_spec(golden_path(family, "model/config.json"));
  options.seq = 32;
  if (options.micro_batch == 1 && options.accumulation == 1) options.micro_batch = 4;
  auto harness = std::make_unique<ModelHarness>(options);
  load_weights(golden_path(family, "model"), harness->instance().states());
  return harness;
}

// Tensors of a safetensors file as parameters by Strata's names.
std::map<std::string, std::vector<float>> read_parameters(const std::string& family, const std::string& file,
                                                          const std::vector<LayerDecl>& layers) {
  const ModelSpec model = read_model_spec(golden_path(family, "model/config.json"));
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("golden-{}-{}-{}", family, file, getpid());
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / "model.safetensors");
  std::filesystem::create_symlink(golden_path(family, file), folder / "model.safetensors");
  std::map<std::string, std::vector<float>> result;
  read_model_weights(folder, model, layers, [&](int layer, int index, const TensorView& values) {
    result[layers[layer].parameters[index].name] = copy_values(values);
  });
  std::filesystem::remove_all(folder);
  return result;
}

bool has_key_bias(const std::string& name) { return name.ends_with("qkv.bias"); }

// The bias without its key third, whose exact gradient is zero.
std::vector<float> without_keys(std::vector<float> bias) {
  const size_t third = bias.size() / 3;
  bias.erase(bias.begin() + static_cast<int64_t>(third), bias.begin() + static_cast<int64_t>(2 * third));
  return bias;
}

class Golden : public ::testing::TestWithParam<std::string> {};

// 1e-5 of the norm: float32 rounding of 2 blocks of width 48 is below 1e-6 (golden README), which leaves a factor of
// ten for other orders of summation.
constexpr double kGradientTolerance = 1e-5;

TEST_P(Golden, LossAndEveryGradient) {
  const std::string family = GetParam();
  const nlohmann::json golden = read_golden(family);
  const std::vector<Document> batch = rows_of(read_ids(golden_path(family, "batch.bin")), 0, 4);
  for (ActivationPolicy policy : {ActivationPolicy::kKeep, ActivationPolicy::kSelective, ActivationPolicy::kFull})
    for (const auto& [micro, accumulation] : std::vector<std::pair<int64_t, int64_t>>{{4, 1}, {2, 2}, {1, 4}}) {
      HarnessOptions options;
      options.activations = policy;
      options.micro_batch = micro;
      options.accumulation = accumulation;
      const auto harness = golden_harness(family, options);
      harness->fill(batch);
      EXPECT_NEAR(harness->step(0.0), golden["batch"]["loss"].get<double>(), 1e-5);
      EXPECT_NEAR(std::sqrt(harness->scalars().norm_squared), golden["batch"]["grad_norm"].get<double>(),
                  1e-5 * golden["batch"]["grad_norm"].get<double>());
      const auto expected = read_parameters(family, "grads.safetensors", harness->layers());
      for (const auto& [name, gradient] : harness->gradients())
        EXPECT_LT(relative_difference(gradient, expected.at(name)), kGradientTolerance) << family << " " << name;
    }
}

TEST_P(Golden, PackedDocumentsAreAsIfAlone) {
  const std::string family = GetParam();
  const nlohmann::json golden = read_golden(family);
  const std::vector<int32_t> ids = read_ids(golden_path(family, "documents.bin"));
  const std::vector<Document> documents = {
      {ids.begin(), ids.begin() + 5}, {ids.begin() + 5, ids.begin() + 22}, {ids.begin() + 22, ids.end()}};
  HarnessOptions options;
  options.micro_batch = 3;
  const auto harness = golden_harness(family, options);
  harness->fill(documents);
  harness->step(0.0);
  EXPECT_NEAR(harness->scalars().loss_sum / 51, golden["documents"]["loss"].get<double>(), 1e-5);
  const auto expected = read_parameters(family, "document_grads.safetensors", harness->layers());
  for (const auto& [name, gradient] : harness->gradients())
    EXPECT_LT(relative_difference(gradient, expected.at(name)), kGradientTolerance) << name;
}

TEST_P(Golden, TwentyStepCurves) {
  const std::string family = GetParam();
  const nlohmann::json curves = read_golden(family)["curves"];
  const std::vector<int32_t> ids = read_ids(golden_path(family, "curve_batches.bin"));
  for (const std::string curve : {"adamw", "sgd", "sgd_clip"}) {
    const nlohmann::json& settings = curves[curve]["optimizer"];
    HarnessOptions options;
    options.optimizer.kind = curve == "adamw" ? OptimizerKind::kAdamW : OptimizerKind::kSgd;
    options.optimizer.weight_decay = settings.value("weight_decay", 0.0);
    options.optimizer.momentum = settings.value("momentum", 0.0);
    options.optimizer.clip_norm = settings.value("clip_norm", 0.0);
    const auto harness = golden_harness(family, options);
    for (size_t step = 0; step < 20; ++step) {
      harness->fill(rows_of(ids, 4 * step, 4));
      const double loss = harness->step(settings["lr"].get<double>());
      // The float32 curve of PyTorch is within 4e-7 of exact; ten times that, and room for AdamW's sensitivity.
      EXPECT_NEAR(loss, curves[curve]["losses"][step].get<double>(), 1e-5 * loss)
          << family << " " << curve << " step " << step;
      const double norm = curves[curve]["grad_norms"][step].get<double>();
      EXPECT_NEAR(std::sqrt(harness->scalars().norm_squared), norm, 2e-5 * norm)
          << family << " " << curve << " step " << step;
    }
    if (curve == "sgd_clip") continue;
    const auto expected = read_parameters(family, curve + "_weights.safetensors", harness->layers());
    for (const auto& [name, weight] : harness->weights()) {
      // SGD keeps float32's accuracy; AdamW turns the rounding of near-zero gradients into parts of a step of lr =
      // 1e-3.
      const double tolerance = curve == "sgd" ? 1e-6 : 1e-4;
      const bool keys = has_key_bias(name);
      EXPECT_LT(relative_difference(keys ? without_keys(weight) : weight,
                                    keys ? without_keys(expected.at(name)) : expected.at(name)),
                tolerance)
          << family << " " << curve << " " << name;
    }
  }
}

TEST_P(Golden, Bf16WithinAMultipleOfPyTorch) {
  const std::string family = GetParam();
  const nlohmann::json golden = read_golden(family);
  HarnessOptions options;
  options.precision = Precision::kBF16;
  const auto harness = golden_harness(family, options);
  harness->fill(rows_of(read_ids(golden_path(family, "batch.bin")), 0, 4));
  const double loss = harness->step(0.0);
  // Both round every stored activation to 8 bits, in other places: twice PyTorch's own error, at least one rounding
  // (2^-9) of the loss.
  const double exact = golden["batch"]["loss"].get<double>();
  EXPECT_LT(std::abs(loss - exact) / exact,
            std::max(2 * std::abs(golden["bfloat16"]["loss_relative_error"].get<double>()), 1.0 / 512));
  const auto expected = read_parameters(family, "grads.safetensors", harness->layers());
  std::vector<float> all, all_expected;
  for (const auto& [name, gradient] : harness->gradients()) {
    all.insert(all.end(), gradient.begin(), gradient.end());
    all_expected.insert(all_expected.end(), expected.at(name).begin(), expected.at(name).end());
  }
  const double error = relative_difference(all, all_expected);
  EXPECT_LT(error, 2 * golden["bfloat16"]["gradient"].get<double>());
  RecordProperty("gradient_error", std::to_string(error));
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, ::testing::Values("gpt2", "llama"));

}  // namespace
}  // namespace strata::testing

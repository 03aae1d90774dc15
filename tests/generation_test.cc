// SPDX-License-Identifier: Apache-2.0
// Text from model folders: against the reference's greedy tokens, against the evaluation program, and what is refused.
#include "strata/train/generation.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "strata/hf/model_folder.h"
#include "strata/hf/tokenizer_json.h"
#include "strata/train/model_evaluation.h"
#include "tests/model_harness.h"
#include "tests/tiny_run.h"

namespace strata::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SamplingOptions greedy(int64_t tokens) {
  SamplingOptions options;
  options.max_tokens = tokens;
  options.temperature = 0;
  return options;
}

std::string golden_folder(const std::string& family) { return std::string(STRATA_GOLDEN) + "/" + family; }

// A folder with the harness's random weights and the bytes tokenizer, if its vocabulary is large enough for one.
void write_model(const std::filesystem::path& path, ModelHarness& harness, const ModelSpec& model) {
  ModelFolder contents{model,
                       harness.layers(),
                       [&](int layer, int parameter) { return harness.executor().master(layer, parameter); },
                       DType::kF32,
                       {}};
  if (model.vocab >= 257)
    contents.add_files = [&](const std::filesystem::path& folder) {
      write_bytes_tokenizer(folder, model.max_positions);
    };
  write_model_folder(path, contents, ExistingTarget::kRefuse);
}

class Generation : public ::testing::TestWithParam<std::string> {
 protected:
  ModelSpec model(int64_t positions, int64_t vocab) const {
    ModelSpec spec = GetParam() == "gpt2" ? tiny_gpt2() : tiny_llama();
    spec.max_positions = positions;
    spec.vocab = vocab;
    return spec;
  }
};

TEST_P(Generation, GreedyTokensAreTheReferences) {
  std::ifstream file(golden_folder(GetParam()) + "/golden.json");
  const nlohmann::json golden = nlohmann::json::parse(file)["greedy"];
  const auto expected = golden["tokens"].get<std::vector<int32_t>>();
  Generator generator(golden_folder(GetParam()) + "/model", 1);
  std::vector<int32_t> seen;
  const std::vector<int32_t> tokens =
      generator.generate(golden["prompt"].get<std::vector<int32_t>>(), greedy(static_cast<int64_t>(expected.size())),
                         [&](int32_t token) { seen.push_back(token); });
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(seen, expected);
}

double negative_log_likelihood(const std::vector<float>& logits, int32_t target) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - logits[static_cast<size_t>(target)]);
  return std::log(sum);
}

// 150 tokens: the prompt goes through the cache in three parts. The sum over all prefixes is the evaluation program's
// loss.
TEST_P(Generation, CachedLogitsAreTheEvaluations) {
  HarnessOptions options;
  options.model = model(160, 97);
  options.seq = 160;
  ModelHarness harness(options);
  const std::vector<Document> documents = make_documents(1, 150, 97, 3);
  harness.fill(documents);
  const double loss = harness.evaluate();
  TemporaryFolder folder;
  write_model(folder / "model", harness, options.model);
  Generator generator(folder / "model", 2);
  double sum = 0;
  for (size_t length = 1; length <= 150; ++length)
    sum += negative_log_likelihood(generator.logits(std::span(documents[0]).first(length)), documents[0][length]);
  EXPECT_NEAR(sum / 150, loss, 1e-6 * loss);  // f32 products of other shapes: a few ulp of each logit, averaged
}

// One token at a time gives what a fresh prompt of the same tokens gives.
TEST_P(Generation, DecodingIsPrefill) {
  HarnessOptions options;
  options.model = model(96, 97);
  ModelHarness harness(options);
  TemporaryFolder folder;
  write_model(folder / "model", harness, options.model);
  Generator generator(folder / "model", 1);
  std::vector<int32_t> tokens = {5, 6, 7};
  const std::vector<int32_t> produced = generator.generate(tokens, greedy(93), {});
  ASSERT_EQ(produced.size(), 93u);
  for (const int32_t token : produced) {
    EXPECT_EQ(token, choose_token(generator.logits(tokens), greedy(1), 0)) << "after " << tokens.size() << " tokens";
    tokens.push_back(token);
  }
}

TEST_P(Generation, EndsAtTheLastPosition) {
  HarnessOptions options;
  options.model = model(16, 97);
  ModelHarness harness(options);
  TemporaryFolder folder;
  write_model(folder / "model", harness, options.model);
  Generator generator(folder / "model", 1);
  const std::vector<int32_t> prompt(16, 3);
  EXPECT_EQ(generator.generate(prompt, greedy(100), {}).size(),
            1u);  // after the last position one more can be told, none read
  EXPECT_EQ(generator.generate(std::span(prompt).first(10), greedy(100), {}).size(), 7u);
}

TEST_P(Generation, SamplingIsRepeatable) {
  HarnessOptions options;
  options.model = model(64, 97);
  ModelHarness harness(options);
  TemporaryFolder folder;
  write_model(folder / "model", harness, options.model);
  Generator generator(folder / "model", 1);
  const std::vector<int32_t> prompt = {1, 2};
  SamplingOptions sampling;
  sampling.max_tokens = 30;
  const std::vector<int32_t> first = generator.generate(prompt, sampling, {});
  EXPECT_EQ(generator.generate(prompt, sampling, {}), first);
  sampling.seed = 2;
  EXPECT_NE(generator.generate(prompt, sampling, {}), first);
  sampling.top_k = 1;
  EXPECT_EQ(generator.generate(prompt, sampling, {}), generator.generate(prompt, greedy(30), {}));
}

// Ids above the tokenizer's, which fill up a vocabulary, are never chosen.
TEST_P(Generation, OnlyTextIsChosen) {
  HarnessOptions options;
  options.model = model(64, 300);
  ModelHarness harness(options);
  TemporaryFolder folder;
  write_model(folder / "model", harness, options.model);
  Generator generator(folder / "model", 1);
  SamplingOptions sampling;
  sampling.temperature = 10;  // nearly uniform: one id in seven would be too large
  for (const int32_t token : generator.generate(generator.tokenizer().encode("ab"), sampling, {}))
    EXPECT_LT(token, 256);
}

INSTANTIATE_TEST_SUITE_P(Families, Generation, ::testing::Values("gpt2", "llama"));

// ---- the choice of a token ------------------------------------------------------------------------------------------

// Probabilities 0.5, 0.25, 0.125, 0.125 of the tokens 2, 0, 1, 3.
const std::vector<float> kLogits = {-1 * std::numbers::ln2_v<float>, -2 * std::numbers::ln2_v<float>, 0,
                                    -2 * std::numbers::ln2_v<float>};

// Tokens at equally spaced random numbers.
std::vector<int32_t> choices(SamplingOptions options) {
  std::vector<int32_t> tokens;
  for (int index = 0; index < 8; ++index) tokens.push_back(choose_token(kLogits, options, (index + 0.5) / 8));
  return tokens;
}

SamplingOptions sampling(double temperature, int64_t top_k, double top_p) { return {1, temperature, top_k, top_p, 1}; }

TEST(ChooseToken, FollowsTheProbabilities) {
  EXPECT_THAT(choices(sampling(1, 0, 1)), ElementsAre(2, 2, 2, 2, 0, 0, 1, 3));
}
TEST(ChooseToken, TemperatureZeroIsTheLikeliest) {
  EXPECT_THAT(choices(sampling(0, 0, 1)), ElementsAre(2, 2, 2, 2, 2, 2, 2, 2));
}
TEST(ChooseToken, HalfTheTemperatureSquares) {
  // 1/4, 1/16, 1/64, 1/64 of 11/32: 8/11, 2/11, 1/22, 1/22.
  EXPECT_THAT(choices(sampling(0.5, 0, 1)), ElementsAre(2, 2, 2, 2, 2, 2, 0, 1));
}
TEST(ChooseToken, TopKCutsAndScales) { EXPECT_THAT(choices(sampling(1, 2, 1)), ElementsAre(2, 2, 2, 2, 2, 0, 0, 0)); }
TEST(ChooseToken, TopPKeepsWhatReachesIt) {
  EXPECT_THAT(choices(sampling(1, 0, 0.4)), ElementsAre(2, 2, 2, 2, 2, 2, 2, 2));
  EXPECT_THAT(choices(sampling(1, 0, 0.6)), ElementsAre(2, 2, 2, 2, 2, 0, 0, 0));
}

TEST(ChooseToken, LogitsThatAreNotFiniteAreRefused) {
  std::vector<float> logits = kLogits;
  logits[1] = std::numeric_limits<float>::quiet_NaN();
  for (double temperature : {0.0, 1.0})
    EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { choose_token(logits, sampling(temperature, 0, 1), 0.5); }),
                HasSubstr("the logit of token 1 is nan"));
}

// ---- what is refused ------------------------------------------------------------------------------------------------

std::string refusal(Generator& generator, std::span<const int32_t> prompt, const SamplingOptions& options) {
  return error_message(ErrorKind::kBadInput, [&] { generator.generate(prompt, options, {}); });
}

TEST(GenerationRefuses, PromptsAndOptions) {
  Generator generator(golden_folder("gpt2") + "/model", 1);  // 32 positions, vocabulary 97
  const std::vector<int32_t> long_prompt(33, 1), one = {1};
  EXPECT_THAT(refusal(generator, {}, greedy(1)), HasSubstr("the prompt is empty"));
  EXPECT_THAT(refusal(generator, long_prompt, greedy(1)), HasSubstr("33 tokens and the model 32 positions"));
  EXPECT_THAT(refusal(generator, std::vector<int32_t>{1, 97}, greedy(1)),
              HasSubstr("token id 97 and the model has a vocabulary of 97"));
  EXPECT_THAT(refusal(generator, one, greedy(0)), HasSubstr("max-tokens is 0"));
  EXPECT_THAT(refusal(generator, one, sampling(-0.5, 0, 1)), HasSubstr("temperature is -0.5"));
  EXPECT_THAT(refusal(generator, one, sampling(std::nan(""), 0, 1)), HasSubstr("temperature is nan"));
  EXPECT_THAT(refusal(generator, one, sampling(1, -1, 1)), HasSubstr("top-k is -1"));
  EXPECT_THAT(refusal(generator, one, sampling(1, 0, 0)), HasSubstr("top-p is 0"));
  EXPECT_THAT(refusal(generator, one, sampling(1, 0, 1.5)), HasSubstr("top-p is 1.5"));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { generator.tokenizer(); }), HasSubstr("has no tokenizer.json"));
}

TEST(GenerationRefuses, TokenizerLargerThanTheModel) {
  TemporaryFolder folder;
  std::filesystem::copy(golden_folder("gpt2") + "/model", folder / "model");
  write_bytes_tokenizer(folder / "model", 32);
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { Generator(folder / "model", 1); }),
              AllOf(HasSubstr("vocabulary of 257"), HasSubstr("the model has 97")));
}

// ---- strata eval ----------------------------------------------------------------------------------------------------

TEST(ModelEvaluation, IsTheTrainersOnTheSameText) {
  TinyRun run;
  write_test_file(run.folder() / "validation.txt", TinyRun::words(7));
  run.config.data.validation = {run.folder() / "validation.txt"};
  const TrainResult trained = train(run.config);
  ModelEvaluationOptions options;
  options.model_folder = trained.model_folder;
  options.data = run.config.data.validation;
  options.threads = 1;
  const ModelEvaluation evaluation = evaluate_model(options);
  EXPECT_EQ(evaluation.result.samples, 7);
  EXPECT_EQ(evaluation.result.counted, 7 * 16);
  EXPECT_NEAR(evaluation.result.loss, *trained.validation_loss, 1e-6 * *trained.validation_loss);
  // All bytes but the first are targets, and the end of the text, which is none.
  EXPECT_EQ(evaluation.bytes, 7 * 16 - 1);
  EXPECT_NEAR(evaluation.bits_per_byte(), evaluation.result.loss * (7 * 16) / std::numbers::ln2 / (7 * 16 - 1), 1e-12);
}

}  // namespace
}  // namespace strata::testing

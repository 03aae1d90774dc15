// SPDX-License-Identifier: Apache-2.0
#include "strata/train/model_evaluation.h"

#include <stdlib.h>

#include <cmath>
#include <filesystem>

#include "strata/base/error.h"
#include "strata/data/ingest.h"
#include "strata/hf/model_folder.h"
#include "strata/hf/tokenizer_json.h"
#include "strata/model/segment.h"
#include "strata/train/model_instance.h"
#include "strata/train/workload.h"

namespace strata {
namespace {

// Bytes of text behind the counted targets of the first `samples` samples.
int64_t target_bytes(const Dataset& dataset, const Tokenizer& tokenizer, int64_t samples) {
  std::vector<int32_t> ids(dataset.seq()), targets(dataset.seq());
  int64_t bytes = 0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    const auto tokens = static_cast<size_t>(dataset.sample_tokens(sample));
    dataset.read_sample(sample, {ids.data(), tokens}, {targets.data(), tokens});
    std::vector<int32_t> counted;
    for (size_t index = 0; index < tokens; ++index)
      if (targets[index] >= 0 && targets[index] != tokenizer.end_of_text()) counted.push_back(targets[index]);
    bytes += static_cast<int64_t>(tokenizer.decode(counted).size());
  }
  return bytes;
}

CompileInput evaluation_input(const ModelSpec& model, const ModelEvaluationOptions& options) {
  CompileInput input;
  input.model = model;
  input.seq = options.seq == 0 ? model.max_positions : options.seq;
  if (input.seq > model.max_positions)
    throw_bad_input("--seq is {} and the model has {} positions", input.seq, model.max_positions);
  input.plan = single_rank_plan(model, ActivationPolicy::kKeep, options.micro_batch, 1,
                                options.threads == 0 ? available_threads() : options.threads);
  input.workspace_bytes = [model, plan = input.plan, seq = input.seq](const LayerDecl& layer, int segment,
                                                                      Direction direction, int64_t tokens) {
    return segment_workspace_bytes(model, plan, layer, segment, direction, {DType::kF32, tokens, seq});
  };
  return input;
}

// Token files of one evaluation.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "strata-eval-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw_failed_run("no temporary folder can be made in {}", std::filesystem::temp_directory_path().string());
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

double ModelEvaluation::bits_per_byte() const {
  return bytes > 0 ? result.loss * static_cast<double>(result.counted) / std::log(2.0) / static_cast<double>(bytes)
                   : 0.0;
}

ModelEvaluation evaluate_model(const ModelEvaluationOptions& options) {
  const ModelSpec model = read_model_spec((std::filesystem::path(options.model_folder) / "config.json").string());
  const std::vector<LayerDecl> layers = declare_layers(model);
  const CompileInput input = evaluation_input(model, options);
  require_bytes_tokenizer(options.model_folder);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer("bytes");
  const TemporaryFolder cache;
  const Dataset dataset(ingest(options.data, *tokenizer, {"--data", cache.path(), "evaluation", model.vocab}).tokens,
                        options.sampling, input.seq);
  const ProgramSet programs = compile(input, {ProgramKind::kEvaluation});
  ModelInstance instance(input, layers, programs, nullptr);
  load_weights(options.model_folder, instance.states());
  ModelEvaluation evaluation;
  Ranks one(nullptr);
  evaluation.result =
      evaluate(instance.executor(), programs.programs.front(), input.plan, dataset, options.max_samples, one);
  evaluation.bytes = target_bytes(dataset, *tokenizer, evaluation.result.samples);
  return evaluation;
}

}  // namespace strata

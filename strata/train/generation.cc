// SPDX-License-Identifier: Apache-2.0
#include "strata/train/generation.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "strata/base/error.h"
#include "strata/base/random.h"
#include "strata/hf/model_folder.h"
#include "strata/hf/tokenizer_json.h"
#include "strata/model/segment.h"
#include "strata/train/initialize.h"
#include "strata/train/workload.h"

namespace strata {
namespace {

constexpr int64_t kPromptPart = 64;  // tokens per execution of the decode program

// Candidates in falling order of probability, cut by top_k and top_p.
std::vector<std::pair<double, int32_t>> candidates(std::span<const float> logits, const SamplingOptions& options) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t wanted = options.top_k > 0 ? std::min<size_t>(options.top_k, order.size()) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(wanted), order.end(),
                    [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  std::vector<std::pair<double, int32_t>> kept;
  double total = 0;
  for (size_t place = 0; place < wanted; ++place) {
    kept.push_back({std::exp((logits[order[place]] - logits[order[0]]) / options.temperature), order[place]});
    total += kept.back().first;
  }
  double seen = 0;
  for (size_t place = 0; place < kept.size(); ++place) {
    seen += kept[place].first / total;
    if (seen >= options.top_p) {
      kept.resize(place + 1);
      break;
    }
  }
  return kept;
}

void check_options(const SamplingOptions& options) {
  if (options.max_tokens < 1) throw_bad_input("max-tokens is {}: it must be at least 1", options.max_tokens);
  if (!(options.temperature >= 0))
    throw_bad_input("temperature is {}: it must be at least 0 (0: always the likeliest token)", options.temperature);
  if (options.top_k < 0) throw_bad_input("top-k is {}: it must be at least 0 (0: all tokens)", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw_bad_input("top-p is {}: it must be above 0 and at most 1 (1: all tokens)", options.top_p);
}

}  // namespace

int32_t choose_token(std::span<const float> logits, const SamplingOptions& options, double random) {
  for (size_t token = 0; token < logits.size(); ++token)
    if (!std::isfinite(logits[token]))
      throw_failed_run("the logit of token {} is {}: the model's weights are damaged, or its training diverged", token,
                       logits[token]);
  if (options.temperature == 0)
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const std::vector<std::pair<double, int32_t>> kept = candidates(logits, options);
  double total = 0;
  for (const auto& [weight, token] : kept) total += weight;
  double left = random * total;
  for (const auto& [weight, token] : kept) {
    left -= weight;
    if (left < 0) return token;
  }
  return kept.back().second;
}

Generator::Generator(const std::string& model_folder, int threads) : folder_(model_folder) {
  input_.model = read_model_spec((std::filesystem::path(model_folder) / "config.json").string());
  layers_ = declare_layers(input_.model);
  input_.plan =
      single_rank_plan(input_.model, ActivationPolicy::kKeep, 1, 1, threads == 0 ? available_threads() : threads);
  input_.decode_tokens = kPromptPart;
  input_.decode_cache_tokens = input_.model.max_positions;
  input_.workspace_bytes = [this](const LayerDecl& layer, int segment, Direction direction, int64_t tokens) {
    return segment_workspace_bytes(input_.model, input_.plan, layer, segment, direction,
                                   {DType::kF32, tokens, input_.model.max_positions});
  };
  programs_ = compile(input_, {ProgramKind::kDecode});
  if (std::filesystem::exists(std::filesystem::path(model_folder) / "tokenizer.json")) {
    require_bytes_tokenizer(model_folder);
    tokenizer_ = make_tokenizer("bytes");
    if (tokenizer_->vocab_size() > input_.model.vocab)
      throw_bad_input("{}: the tokenizer has a vocabulary of {}, the model has {}", model_folder,
                      tokenizer_->vocab_size(), input_.model.vocab);
  }
  instance_ = std::make_unique<ModelInstance>(input_, layers_, programs_, nullptr);
  load_weights(model_folder, instance_->states());
}

const Tokenizer& Generator::tokenizer() const {
  if (!tokenizer_)
    throw_bad_input("{} has no tokenizer.json: the model was trained on token ids of an unknown tokenizer", folder_);
  return *tokenizer_;
}

std::span<const float> Generator::decode(std::span<const int32_t> tokens, int64_t past) {
  BatchSheet sheet;
  sheet.micro_batches.push_back(instance_->executor().decode_storage().resize(static_cast<int64_t>(tokens.size()), 1));
  MicroBatch& batch = sheet.micro_batches.front();
  for (size_t index = 0; index < tokens.size(); ++index) {
    batch.ids[index] = tokens[index];
    batch.targets[index] = -1;
    batch.positions[index] = static_cast<int32_t>(past + static_cast<int64_t>(index));
    batch.token_indices[index] = batch.positions[index];
  }
  batch.offsets[0] = 0;
  batch.offsets[1] = static_cast<int32_t>(tokens.size());
  Executor& executor = instance_->executor();
  executor.scalars().training = false;
  const Program& program = programs_.programs.front();
  executor.run(program, sheet);
  const Instruction& head = program.instructions.back();
  for (const Use& use : head.uses)
    if (use.role == Role::kTensor && use.index == head_tensor::kLogits)
      return {reinterpret_cast<const float*>(executor.booking_data(program, use.booking)),
              static_cast<size_t>(input_.model.vocab)};
  STRATA_CHECK(false, "the decode program ends without logits");
  return {};
}

void Generator::check_prompt(std::span<const int32_t> prompt) const {
  if (prompt.empty()) throw_bad_input("the prompt is empty: give at least one token");
  if (static_cast<int64_t>(prompt.size()) > input_.model.max_positions)
    throw_bad_input("the prompt has {} tokens and the model {} positions: shorten the prompt", prompt.size(),
                    input_.model.max_positions);
  for (const int32_t token : prompt)
    if (token < 0 || token >= input_.model.vocab)
      throw_bad_input("the prompt holds token id {} and the model has a vocabulary of {}", token, input_.model.vocab);
}

std::span<const float> Generator::prefill(std::span<const int32_t> tokens) {
  check_prompt(tokens);
  std::span<const float> last;
  for (size_t begin = 0; begin < tokens.size(); begin += kPromptPart)
    last = decode(tokens.subspan(begin, std::min<size_t>(kPromptPart, tokens.size() - begin)),
                  static_cast<int64_t>(begin));
  return last;
}

std::vector<float> Generator::logits(std::span<const int32_t> tokens) {
  const std::span<const float> last = prefill(tokens);
  return {last.begin(), last.end()};
}

std::vector<int32_t> Generator::generate(std::span<const int32_t> prompt, const SamplingOptions& options,
                                         const std::function<void(int32_t)>& on_token) {
  check_options(options);
  // Ids above the tokenizer's, which fill up the vocabulary of some models, are no text.
  const auto choices = static_cast<size_t>(tokenizer_ ? tokenizer_->vocab_size() : input_.model.vocab);
  std::vector<int32_t> produced;
  std::span<const float> logits = prefill(prompt);
  auto place = static_cast<int64_t>(prompt.size());
  while (static_cast<int64_t>(produced.size()) < options.max_tokens) {
    const double random = uniform_from(philox(options.seed, static_cast<uint64_t>(place), 0)[0]);
    const int32_t token = choose_token(logits.first(choices), options, random);
    if ((tokenizer_ && token == tokenizer_->end_of_text()) || token == input_.model.eos_token) break;
    produced.push_back(token);
    if (on_token) on_token(token);
    if (place >= input_.model.max_positions || static_cast<int64_t>(produced.size()) == options.max_tokens) break;
    logits = decode(std::span(&produced.back(), 1), place++);
  }
  return produced;
}

}  // namespace strata

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
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(wanted), order.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
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

}  // namespace

int32_t choose_token(std::span<const float> logits, const SamplingOptions& options, double random) {
  if (options.temperature == 0) return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
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

Generator::Generator(const std::string& model_folder, int threads) {
  input_.model = read_model_spec((std::filesystem::path(model_folder) / "config.json").string());
  layers_ = declare_layers(input_.model);
  input_.plan = single_rank_plan(input_.model, ActivationPolicy::kKeep, 1, 1, threads == 0 ? available_threads() : threads);
  input_.decode_tokens = kPromptPart;
  input_.decode_cache_tokens = input_.model.max_positions;
  input_.workspace_bytes = [this](const LayerDecl& layer, int segment, Direction direction, int64_t tokens) {
    return segment_workspace_bytes(input_.model, layer, segment, direction,
                                   {DType::kF32, tokens, input_.model.max_positions, static_cast<int>(input_.plan.threads)});
  };
  programs_ = compile(input_, {ProgramKind::kDecode});
  require_bytes_tokenizer(model_folder);
  tokenizer_ = make_tokenizer("bytes");
  instance_ = std::make_unique<ModelInstance>(input_, layers_, programs_);
  load_weights(model_folder, input_.model, layers_, *instance_);
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
      return {reinterpret_cast<const float*>(executor.booking_data(program, use.booking)), static_cast<size_t>(input_.model.vocab)};
  STRATA_CHECK(false, "the decode program ends without logits");
  return {};
}

std::span<const float> Generator::prefill(std::span<const int32_t> tokens) {
  if (tokens.empty()) throw_bad_input("the prompt is empty: give at least one token");
  if (static_cast<int64_t>(tokens.size()) > input_.model.max_positions)
    throw_bad_input("the prompt has {} tokens and the model {} positions: shorten the prompt", tokens.size(), input_.model.max_positions);
  std::span<const float> last;
  for (size_t begin = 0; begin < tokens.size(); begin += kPromptPart)
    last = decode(tokens.subspan(begin, std::min<size_t>(kPromptPart, tokens.size() - begin)), static_cast<int64_t>(begin));
  return last;
}

std::vector<float> Generator::logits(std::span<const int32_t> tokens) {
  const std::span<const float> last = prefill(tokens);
  return {last.begin(), last.end()};
}

std::vector<int32_t> Generator::generate(std::span<const int32_t> prompt, const SamplingOptions& options,
                                         const std::function<void(int32_t)>& on_token) {
  std::vector<int32_t> produced;
  std::span<const float> logits = prefill(prompt);
  auto place = static_cast<int64_t>(prompt.size());
  while (static_cast<int64_t>(produced.size()) < options.max_tokens) {
    const double random = uniform_from(philox(options.seed, static_cast<uint64_t>(place), 0)[0]);
    const int32_t token = choose_token(logits, options, random);
    if (token == tokenizer_->end_of_text() || token == input_.model.eos_token) break;
    produced.push_back(token);
    if (on_token) on_token(token);
    if (place >= input_.model.max_positions || static_cast<int64_t>(produced.size()) == options.max_tokens) break;
    logits = decode(std::span(&produced.back(), 1), place++);
  }
  return produced;
}

}  // namespace strata

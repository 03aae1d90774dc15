// SPDX-License-Identifier: Apache-2.0
// Text from a model folder: one sequence, KV cache, greedy or sampled. The prompt goes through the decode program in
// parts of at most its capacity, then one token at a time.
#pragma once

#include <functional>
#include <memory>

#include "strata/data/tokenizer.h"
#include "strata/train/model_instance.h"

namespace strata {

struct SamplingOptions {
  int64_t max_tokens = 200;
  double temperature = 0.8;  // 0: greedy
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;
  uint64_t seed = 1;
};

class Generator {
 public:
  // Reads config.json, weights and, where there is one, the tokenizer of a Hugging Face folder. `threads` 0: all
  // available.
  Generator(const std::string& model_folder, int threads);

  // Throws Error when the folder has none.
  const Tokenizer& tokenizer() const;
  const ModelSpec& model() const { return input_.model; }

  // New tokens after the prompt, until end of text, max_tokens or the model's last position; `on_token` sees each as it
  // comes. Throws Error for a prompt that is empty, longer than the model or with ids beyond its vocabulary, and for
  // sampling options out of range.
  std::vector<int32_t> generate(std::span<const int32_t> prompt, const SamplingOptions& options,
                                const std::function<void(int32_t)>& on_token);

  // Next-token logits (vocab) after these tokens, from an empty cache.
  std::vector<float> logits(std::span<const int32_t> tokens);

 private:
  void check_prompt(std::span<const int32_t> prompt) const;
  std::span<const float> decode(std::span<const int32_t> tokens, int64_t past);
  std::span<const float> prefill(std::span<const int32_t> tokens);

  std::string folder_;
  std::vector<LayerDecl> layers_;
  CompileInput input_;
  ProgramSet programs_;
  std::unique_ptr<Tokenizer> tokenizer_;  // null without one
  std::unique_ptr<ModelInstance> instance_;
};

// The choice of the next token: arg-max at temperature 0, otherwise from the softmax of the top_k / top_p candidates.
// `random` in [0, 1). Throws Error for logits that are not finite.
int32_t choose_token(std::span<const float> logits, const SamplingOptions& options, double random);

}  // namespace strata

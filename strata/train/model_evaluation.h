// SPDX-License-Identifier: Apache-2.0
// `strata eval`: a model folder against files of text.
#pragma once

#include "strata/train/evaluation.h"

namespace strata {

struct ModelEvaluationOptions {
  std::string model_folder;
  std::vector<std::string> data;
  Sampling sampling = Sampling::kWindow;
  int64_t seq = 0;          // 0: the model's positions
  int64_t micro_batch = 4;  // samples at a time; does not change the result's meaning
  int64_t max_samples = 0;  // 0: all
  int threads = 0;          // 0: all available
};

struct ModelEvaluation {
  EvaluationResult result;
  int64_t bytes = 0;  // of text that the counted tokens stand for
  double bits_per_byte() const;
};

ModelEvaluation evaluate_model(const ModelEvaluationOptions& options);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// The data of a run: the tokenizer, and the train and validation datasets that the config names, tokenised into token
// files when they are not there yet. Reports what was kept and cut.
#pragma once

#include <memory>
#include <optional>

#include "strata/data/dataset.h"
#include "strata/data/tokenizer.h"
#include "strata/spec/model_spec.h"

namespace strata {

struct Corpus {
  std::unique_ptr<Tokenizer> tokenizer;  // null: the data are token ids of an unknown one
  std::optional<Dataset> train;
  std::optional<Dataset> validation;  // absent when validation_fraction is 0 and no files are given
};

// Throws Error for missing, empty or unreadable files, and for a tokenizer with more ids than the model's vocabulary.
Corpus open_corpus(const TrainConfig& config, const ModelSpec& model, const std::string& run_folder);

}  // namespace strata

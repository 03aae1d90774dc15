// SPDX-License-Identifier: Apache-2.0
// Loss over a dataset, in order, every target once: the token-weighted mean, whatever the micro-batch.
#pragma once

#include "strata/data/dataset.h"
#include "strata/exec/executor.h"
#include "strata/train/ranks.h"

namespace strata {

struct EvaluationResult {
  double loss = 0;  // nats per counted token
  int64_t counted = 0;
  int64_t samples = 0;
  double perplexity() const;
};

// At most `max_samples` samples from the front (0: all), dealt out to the data-parallel ranks. Leaves parameters and
// optimizer untouched; uses the executor's batch and scalars. Every evaluation of the same weights and samples under
// one plan gives the same bits. Called by all ranks, which get the same result.
EvaluationResult evaluate(Executor& executor, const Program& program, const Plan& plan, const Dataset& dataset,
                          int64_t max_samples, Ranks& ranks);

}  // namespace strata

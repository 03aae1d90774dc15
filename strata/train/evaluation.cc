// SPDX-License-Identifier: Apache-2.0
#include "strata/train/evaluation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "strata/data/sampler.h"

namespace strata {

double EvaluationResult::perplexity() const { return std::exp(loss); }

EvaluationResult evaluate(Executor& executor, const Program& program, const Plan& plan, const Dataset& dataset,
                          int64_t max_samples) {
  const int64_t samples = max_samples == 0 ? dataset.num_samples() : std::min(max_samples, dataset.num_samples());
  const SampleOrder order = SampleOrder::sequential(dataset.num_samples());
  const std::array<MicroBatchStorage, 1> storage = {executor.batch_storage(0)};
  StepScalars& scalars = executor.scalars();
  scalars.training = false;
  scalars.loss_sum = 0;
  EvaluationResult result;
  result.samples = samples;
  BatchSheet sheet;
  for (int64_t first = 0; first < samples; first += plan.micro_batch) {
    fill_batch_sheet(dataset, order, {first, std::min(plan.micro_batch, samples - first), plan.micro_batch, 1}, storage,
                     sheet);
    executor.run(program, sheet);
    result.counted += sheet.counted;
  }
  result.loss = result.counted > 0 ? scalars.loss_sum / static_cast<double>(result.counted) : 0.0;
  return result;
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/evaluation.h"

#include <algorithm>
#include <cmath>

#include "strata/data/sampler.h"

namespace strata {

double EvaluationResult::perplexity() const { return std::exp(loss); }

EvaluationResult evaluate(Executor& executor, const Program& program, const Plan& plan, const Dataset& dataset,
                          int64_t max_samples, Ranks& ranks) {
  const int64_t samples = max_samples == 0 ? dataset.num_samples() : std::min(max_samples, dataset.num_samples());
  const SampleOrder order = SampleOrder::sequential(dataset.num_samples());
  const std::vector<MicroBatchStorage> storages = executor.batch_storages(1);
  StepScalars& scalars = executor.scalars();
  scalars.training = false;
  scalars.loss_sum = 0;
  EvaluationResult result;
  result.samples = samples;
  BatchSheet sheet;
  const int64_t round = stage_samples(plan);
  for (int64_t first = 0; first < samples; first += round) {
    fill_batch_sheet(dataset, order, batch_extents(plan, ranks.rank(), first, std::min(round, samples - first), 1),
                     storages, sheet);
    executor.run(program, sheet);
    result.counted += sheet.counted;
  }
  const double loss_sum = ranks.sum(scalars.loss_sum);
  result.loss = result.counted > 0 ? loss_sum / static_cast<double>(result.counted) : 0.0;
  return result;
}

}  // namespace strata

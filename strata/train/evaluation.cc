// SPDX-License-Identifier: Apache-2.0
#include "strata/train/evaluation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "strata/data/sampler.h"
#include "strata/program/chunks.h"

namespace strata {

double EvaluationResult::perplexity() const { return std::exp(loss); }

EvaluationResult evaluate(Executor& executor, const Program& program, const Plan& plan, const Dataset& dataset,
                          int64_t max_samples, Ranks& ranks) {
  const int64_t samples = max_samples == 0 ? dataset.num_samples() : std::min(max_samples, dataset.num_samples());
  const SampleOrder order = SampleOrder::sequential(dataset.num_samples());
  const std::array<MicroBatchStorage, 1> storage = {executor.batch_storage(0)};
  const RankPlace place = place_of_rank(plan, ranks.rank());
  StepScalars& scalars = executor.scalars();
  scalars.training = false;
  scalars.loss_sum = 0;
  EvaluationResult result;
  result.samples = samples;
  BatchSheet sheet;
  const int64_t round = plan.micro_batch * place.dp;  // samples of all data-parallel ranks
  for (int64_t first = 0; first < samples; first += round) {
    fill_batch_sheet(
        dataset, order,
        {first, std::min(round, samples - first), plan.micro_batch, 1, place.data, place.dp, place.context, place.cp},
        storage, sheet);
    executor.run(program, sheet);
    result.counted += sheet.counted;
  }
  const double loss_sum = ranks.sum(scalars.loss_sum);
  result.loss = result.counted > 0 ? loss_sum / static_cast<double>(result.counted) : 0.0;
  return result;
}

}  // namespace strata

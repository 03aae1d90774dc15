// SPDX-License-Identifier: Apache-2.0
// write_events FOLDER RESUMED_STEP LAST_STEP LOSS: TensorBoard events of steps RESUMED_STEP + 1 .. LAST_STEP as a run
// that resumes would write them, with this loss at every step and a validation loss at every fourth. For tests/python.
#include <cstdio>
#include <cstdlib>

#include "strata/train/tensorboard_metrics.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: write_events FOLDER RESUMED_STEP LAST_STEP LOSS\n", stderr);
    return 2;
  }
  const int64_t resumed_step = std::atoll(argv[2]), last_step = std::atoll(argv[3]);
  const double loss = std::atof(argv[4]);
  strata::TensorboardMetrics writer(argv[1], resumed_step);
  for (int64_t step = resumed_step + 1; step <= last_step; ++step) {
    strata::StepMetrics metrics{
        .step = step, .tokens_seen = 1000 * step, .loss = loss, .memory_bytes = int64_t{1} << 33};
    if (step % 4 == 0) metrics.validation_loss = loss + 1;
    writer.write(metrics);
  }
  return 0;
}

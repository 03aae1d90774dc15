// SPDX-License-Identifier: Apache-2.0
#include "strata/program/schedule.h"

#include <algorithm>

namespace strata {

std::vector<ScheduleItem> one_forward_one_backward(int64_t stage, int64_t num_stages, int64_t num_micro_batches) {
  const int64_t ahead = std::min(num_stages - 1 - stage, num_micro_batches);
  std::vector<ScheduleItem> order;
  int forward = 0, backward = 0;
  while (forward < ahead) order.push_back({forward++, false});
  while (forward < num_micro_batches) {
    order.push_back({forward++, false});
    order.push_back({backward++, true});
  }
  while (backward < num_micro_batches) order.push_back({backward++, true});
  return order;
}

}  // namespace strata

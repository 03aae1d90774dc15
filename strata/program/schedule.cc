// SPDX-License-Identifier: Apache-2.0
#include "strata/program/schedule.h"

#include <algorithm>

#include "strata/base/error.h"

namespace strata {
namespace {

// `forwards` and `backwards` in turn, the first `ahead` forwards before any backward.
std::vector<ScheduleItem> alternate(const std::vector<ScheduleItem>& forwards,
                                    const std::vector<ScheduleItem>& backwards, size_t ahead) {
  std::vector<ScheduleItem> order;
  size_t forward = 0, backward = 0;
  while (forward < std::min(ahead, forwards.size())) order.push_back(forwards[forward++]);
  while (forward < forwards.size()) {
    order.push_back(forwards[forward++]);
    order.push_back(backwards[backward++]);
  }
  while (backward < backwards.size()) order.push_back(backwards[backward++]);
  return order;
}

std::vector<ScheduleItem> all_micro_batches(int64_t num_micro_batches, Work work) {
  std::vector<ScheduleItem> items;
  for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) items.push_back({micro_batch, 0, work});
  return items;
}

}  // namespace

std::vector<ScheduleItem> gpipe(int64_t num_micro_batches) { return breadth_first(1, num_micro_batches); }

std::vector<ScheduleItem> one_forward_one_backward(int64_t stage, int64_t num_stages, int64_t num_micro_batches) {
  return alternate(all_micro_batches(num_micro_batches, Work::kForward),
                   all_micro_batches(num_micro_batches, Work::kBackward), static_cast<size_t>(num_stages - 1 - stage));
}

std::vector<ScheduleItem> interleaved(int64_t stage, int64_t num_stages, int64_t num_ranges,
                                      int64_t num_micro_batches) {
  STRATA_CHECK(num_micro_batches % num_stages == 0, "{} micro-batches over {} stages", num_micro_batches, num_stages);
  std::vector<ScheduleItem> forwards, backwards;
  for (int64_t group = 0; group < num_micro_batches; group += num_stages)
    for (int64_t range = 0; range < num_ranges; ++range)
      for (int64_t micro_batch = group; micro_batch < group + num_stages; ++micro_batch) {
        forwards.push_back({static_cast<int>(micro_batch), static_cast<int>(range), Work::kForward});
        backwards.push_back({static_cast<int>(micro_batch), static_cast<int>(num_ranges - 1 - range), Work::kBackward});
      }
  const int64_t ahead = 2 * (num_stages - 1 - stage) + (num_ranges - 1) * num_stages;
  return alternate(forwards, backwards, static_cast<size_t>(ahead));
}

std::vector<ScheduleItem> breadth_first(int64_t num_ranges, int64_t num_micro_batches) {
  std::vector<ScheduleItem> order;
  for (int range = 0; range < num_ranges; ++range)
    for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch)
      order.push_back({micro_batch, range, Work::kForward});
  for (int range = static_cast<int>(num_ranges) - 1; range >= 0; --range)
    for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch)
      order.push_back({micro_batch, range, Work::kBackward});
  return order;
}

std::vector<ScheduleItem> zero_bubble(int64_t stage, int64_t num_stages, int64_t num_micro_batches) {
  std::vector<ScheduleItem> order;
  int64_t backward = 0, weight = 0;
  const auto add_weight = [&] { order.push_back({static_cast<int>(weight++), 0, Work::kBackwardWeight}); };
  for (ScheduleItem item : one_forward_one_backward(stage, num_stages, num_micro_batches)) {
    const bool is_backward = item.work == Work::kBackward;
    if (is_backward) item.work = Work::kBackwardInput;
    order.push_back(item);
    if (is_backward && ++backward - weight > stage) add_weight();
  }
  while (weight < num_micro_batches) add_weight();
  return order;
}

std::vector<ScheduleItem> schedule(const PipelineShape& shape, int64_t stage, int64_t num_ranges) {
  switch (shape.order) {
    case PipelineOrder::kGpipe: return gpipe(shape.num_micro_batches);
    case PipelineOrder::kOneForwardOneBackward:
      return one_forward_one_backward(stage, shape.num_stages, shape.num_micro_batches);
    case PipelineOrder::kInterleaved: return interleaved(stage, shape.num_stages, num_ranges, shape.num_micro_batches);
    case PipelineOrder::kBreadthFirst:
    case PipelineOrder::kLayered: return breadth_first(num_ranges, shape.num_micro_batches);
    case PipelineOrder::kZeroBubble: return zero_bubble(stage, shape.num_stages, shape.num_micro_batches);
  }
  STRATA_CHECK(false, "order {}", static_cast<int>(shape.order));
  return {};
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/program/pipeline.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "strata/base/error.h"

namespace strata {
namespace {

// In halves of a forward.
int64_t duration_of(Work work) { return work == Work::kBackward ? 4 : 2; }

// Messages take half a forward, so that they stand before the work that they run beside. One forward, one backward is
// the order of little memory: its received activations do not wait for that work to end.
int64_t message_time_of(PipelineOrder order) { return order == PipelineOrder::kOneForwardOneBackward ? 0 : 1; }

bool is_forward(Work work) { return work == Work::kForward; }

// Ranges by place in the model, and where each stage has them.
class RangeMap {
 public:
  RangeMap(const PipelineShape& shape, const std::vector<LayerRange>& ranges)
      : ranges_(ranges), on_stage_(static_cast<size_t>(shape.num_stages)) {
    for (int index = 0; index < static_cast<int>(ranges.size()); ++index) {
      std::vector<int>& mine = on_stage_[static_cast<size_t>(ranges[index].stage)];
      local_.push_back(static_cast<int>(mine.size()));
      mine.push_back(index);
    }
  }
  int size() const { return static_cast<int>(ranges_.size()); }
  int64_t stage_of(int range) const { return ranges_[range].stage; }
  int local(int range) const { return local_[range]; }
  int global(int64_t stage, const ScheduleItem& item) const { return on_stage_[stage][item.range]; }
  int64_t count(int64_t stage) const { return static_cast<int64_t>(on_stage_[stage].size()); }

 private:
  const std::vector<LayerRange>& ranges_;
  std::vector<std::vector<int>> on_stage_;
  std::vector<int> local_;
};

constexpr int64_t kNotYet = -1;

// Runs the schedules of all stages side by side.
class Timing {
 public:
  Timing(const PipelineShape& shape, const RangeMap& ranges, int64_t message_time)
      : shape_(shape),
        ranges_(ranges),
        message_time_(message_time),
        ends_(2 * ranges.size() * shape.num_micro_batches, kNotYet) {}

  std::vector<std::vector<TimedItem>> run() {
    std::vector<std::vector<ScheduleItem>> orders;
    for (int64_t stage = 0; stage < shape_.num_stages; ++stage)
      orders.push_back(schedule(shape_, stage, ranges_.count(stage)));
    std::vector<std::vector<TimedItem>> times(orders.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < orders.size(); ++stage)
        while (times[stage].size() < orders[stage].size() &&
               place_next(static_cast<int64_t>(stage), orders[stage][times[stage].size()], times[stage]))
          moved = true;
    }
    for (size_t stage = 0; stage < orders.size(); ++stage)
      STRATA_CHECK(times[stage].size() == orders[stage].size(), "order {} stops on stage {} of {} after {} items",
                   order_name(shape_.order), stage, shape_.num_stages, times[stage].size());
    return times;
  }

 private:
  int64_t& end(int range, int micro_batch, bool forward) {
    return ends_[(2 * micro_batch + (forward ? 1 : 0)) * ranges_.size() + range];
  }

  // When what an item reads is there.
  int64_t ready(int range, const ScheduleItem& item) {
    if (item.work == Work::kBackwardWeight) return end(range, item.micro_batch, false);
    const bool forward = is_forward(item.work);
    const int from = forward ? range - 1 : range + 1;
    if (from < 0) return 0;
    if (from == ranges_.size()) return end(range, item.micro_batch, true);
    const int64_t sent = end(from, item.micro_batch, forward);
    const bool message = ranges_.stage_of(from) != ranges_.stage_of(range);
    return sent == kNotYet || !message ? sent : sent + message_time_;
  }

  bool place_next(int64_t stage, const ScheduleItem& item, std::vector<TimedItem>& times) {
    const int range = ranges_.global(stage, item);
    const int64_t there = ready(range, item);
    if (there == kNotYet) return false;
    const int64_t start = std::max(there, times.empty() ? 0 : times.back().end);
    times.push_back({item, start, start + duration_of(item.work)});
    if (item.work != Work::kBackwardWeight) end(range, item.micro_batch, is_forward(item.work)) = times.back().end;
    return true;
  }

  const PipelineShape& shape_;
  const RangeMap& ranges_;
  int64_t message_time_;
  std::vector<int64_t> ends_;
};

// A message between neighbouring ranges on different stages, with its place on the time axis.
struct Message {
  int64_t time = 0;
  int from_range = 0, to_range = 0;  // in model order
  ScheduleItem sender, receiver;

  // Of messages at one time, those nearest to their end of the model go first.
  auto key() const {
    const bool forward = from_range < to_range;
    return std::tuple(time, forward ? 0 : 1, forward ? -from_range : from_range, sender.micro_batch);
  }
};

class StageSteps {
 public:
  StageSteps(const PipelineShape& shape, const std::vector<LayerRange>& ranges)
      : shape_(shape),
        ranges_(shape, ranges),
        message_time_(message_time_of(shape.order)),
        times_(Timing(shape, ranges_, message_time_).run()) {
    starts_.assign(2 * ranges_.size() * shape.num_micro_batches, 0);
    for (int64_t stage = 0; stage < shape.num_stages; ++stage)
      for (const TimedItem& timed : times_[stage])
        if (timed.item.work != Work::kBackwardWeight)
          start(ranges_.global(stage, timed.item), timed.item.micro_batch, is_forward(timed.item.work)) = timed.start;
  }

  std::vector<StageStep> steps(int64_t stage) {
    std::vector<Message> messages = messages_of(stage);
    std::sort(messages.begin(), messages.end(), [](const Message& a, const Message& b) { return a.key() < b.key(); });
    std::vector<StageStep> steps;
    auto next = messages.begin();
    const auto add_messages_before = [&](int64_t time) {
      for (; next != messages.end() && next->time < time; ++next) {
        const bool sends = ranges_.stage_of(next->from_range) == stage;
        steps.push_back({sends ? StageAction::kSend : StageAction::kReceive, sends ? next->sender : next->receiver,
                         ranges_.stage_of(sends ? next->to_range : next->from_range)});
      }
    };
    for (const TimedItem& timed : times_[stage]) {
      add_messages_before(timed.end);
      steps.push_back({StageAction::kWork, timed.item, -1});
    }
    add_messages_before(std::numeric_limits<int64_t>::max());
    return steps;
  }

 private:
  int64_t& start(int range, int micro_batch, bool forward) {
    return starts_[(2 * micro_batch + (forward ? 1 : 0)) * ranges_.size() + range];
  }

  // Work that reads what the item made, on a neighbouring range; range -1: nothing does.
  std::pair<int, ScheduleItem> reader(int range, const ScheduleItem& item) const {
    if (item.work == Work::kBackwardWeight) return {-1, {}};
    const int to = is_forward(item.work) ? range + 1 : range - 1;
    if (to < 0 || to >= ranges_.size() || ranges_.stage_of(to) == ranges_.stage_of(range)) return {-1, {}};
    return {to, {item.micro_batch, ranges_.local(to), item.work}};
  }

  std::vector<Message> messages_of(int64_t stage) {
    std::vector<Message> messages;
    for (int64_t sender = 0; sender < shape_.num_stages; ++sender)
      for (size_t index = 0; index < times_[sender].size(); ++index) {
        const ScheduleItem& item = times_[sender][index].item;
        const int range = ranges_.global(sender, item);
        const auto [to, receiver] = reader(range, item);
        if (to < 0 || (sender != stage && ranges_.stage_of(to) != stage)) continue;
        int64_t time = start(to, item.micro_batch, is_forward(item.work)) - message_time_;
        if (index + 1 < times_[sender].size()) time = std::min(time, times_[sender][index + 1].start);
        messages.push_back({time, range, to, item, receiver});
      }
    return messages;
  }

  const PipelineShape& shape_;
  RangeMap ranges_;
  int64_t message_time_;
  std::vector<std::vector<TimedItem>> times_;
  std::vector<int64_t> starts_;
};

}  // namespace

std::vector<std::vector<TimedItem>> pipeline_times(const PipelineShape& shape, const std::vector<LayerRange>& ranges) {
  return Timing(shape, RangeMap(shape, ranges), 0).run();
}

std::vector<StageStep> stage_steps(const PipelineShape& shape, const std::vector<LayerRange>& ranges, int64_t stage) {
  return StageSteps(shape, ranges).steps(stage);
}

}  // namespace strata

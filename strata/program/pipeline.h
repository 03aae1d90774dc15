// SPDX-License-Identifier: Apache-2.0
// What a stage does in a step: its schedule with the messages to and from its neighbours in between. Sends and their
// receives are rendezvous, so their places decide whether the ranks can get stuck. All stages' schedules are put on one
// time axis: two units per forward and per part of backward and one per message, though any times would do. A message
// has a moment between the end of the work that makes it and the start of the work that needs it: as late as the
// sender's next work allows. It stands after all work that has ended by that moment and before the rest. That is one
// order of all work and messages of all stages, and every stage's steps are a part of it: whatever comes first in it
// and is not done is next on its stages, so that all stages end even one instruction at a time. Pure.
#pragma once

#include <vector>

#include "strata/program/chunks.h"
#include "strata/program/schedule.h"

namespace strata {

enum class StageAction : uint8_t { kWork, kSend, kReceive };

struct StageStep {
  StageAction action = StageAction::kWork;
  ScheduleItem item;  // of this stage; for messages the work that makes or needs it
  int64_t peer_stage = -1;
  bool operator==(const StageStep&) const = default;
};

// `ranges` are those of all stages in model order. STRATA_CHECK fails when the schedules cannot end.
std::vector<StageStep> stage_steps(const PipelineShape& shape, const std::vector<LayerRange>& ranges, int64_t stage);

// When an item of a stage runs, in the units of above; here messages take no time.
struct TimedItem {
  ScheduleItem item;
  int64_t start = 0, end = 0;
};
std::vector<std::vector<TimedItem>> pipeline_times(const PipelineShape& shape, const std::vector<LayerRange>& ranges);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/program/expand.h"

#include "strata/base/error.h"
#include "strata/program/builder.h"
#include "strata/program/place.h"

namespace strata {
namespace {

void place_with_groups(Program& program, ProgramBuilder& builder, const ProgramSet& set, const Plan& plan) {
  std::vector<int> groups;
  for (const Chunk& chunk : set.chunks) groups.push_back(builder.chunk_group(chunk));
  program.groups = builder.groups();
  place_chunks(program, set, groups, gather_units(plan));
}

// Forward through all layer ranges of the stage, with messages where the next layer is on another stage.
Program expand_forward(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                       const std::vector<Booking>& persistent, const std::string& name, Direction direction,
                       std::vector<int64_t> capacity_tokens) {
  ProgramBuilder builder(input, layers, set, persistent, name, std::move(capacity_tokens));
  const RankPlace& place = builder.place();
  const std::vector<LayerRange> ranges = layer_ranges(input.plan);
  const auto message = [&](Op op, int64_t stage, int layer, int booking, Access access) {
    const int over = builder.passed_group(layer);
    Instruction& instruction = builder.emit(op, Queue::kForwardPipe);
    instruction.group = over;
    instruction.peer = place.rank_of_stage(stage);
    instruction.elements = builder.tensor_elements(layer, layers[layer].output);
    instruction.micro_batch = 0;
    instruction.layer = layer;
    instruction.uses.push_back({booking, access, Role::kMessage, -1});
  };
  for (size_t index = 0; index < ranges.size(); ++index) {
    if (ranges[index].stage != place.stage) continue;
    const auto [stage, first, end] = ranges[index];
    if (index > 0 && ranges[index - 1].stage != stage) {
      message(Op::kRecv, ranges[index - 1].stage, first - 1,
              builder.book_passed(first - 1, layers[first - 1].output, 0), Access::kWrite);
      builder.hand_over_output(first - 1, 0);
    }
    for (int layer = first; layer < end; ++layer) {
      if (set.cache_booking[layer] >= 0) builder.bind(layer, attention_tensor::kKvCache, 0, set.cache_booking[layer]);
      builder.forward_layer(layer, direction, 0);
      if (layers[layer].kind == LayerKind::kHead && direction == Direction::kDecode)
        builder.complete(layer, head_tensor::kLogits, 0);
      if (place.holds(layer + 1)) builder.hand_over_output(layer, 0);
    }
    if (index + 1 < ranges.size() && ranges[index + 1].stage != stage)
      message(Op::kSend, ranges[index + 1].stage, end - 1, builder.passed(end - 1, layers[end - 1].output, 0),
              Access::kRead);
  }
  Program program = builder.finish();
  place_with_groups(program, builder, set, input.plan);
  return program;
}

}  // namespace

std::vector<int64_t> micro_batch_capacities(const CompileInput& input) {
  std::vector<int64_t> tokens;
  for (const LayerPlan& layer : input.plan.layers) tokens.push_back(batch_capacity(input, token_split(layer)).tokens);
  return tokens;
}

Program expand_evaluation(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                          const std::vector<Booking>& persistent) {
  return expand_forward(input, layers, set, persistent, "evaluation", Direction::kForward,
                        micro_batch_capacities(input));
}

Program expand_decode(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                      const std::vector<Booking>& persistent) {
  return expand_forward(input, layers, set, persistent, "decode", Direction::kDecode,
                        std::vector<int64_t>(layers.size(), input.decode_tokens));
}

// Every rank writes what it owns: at ZeRO 0 the first replica, from ZeRO 1 on every rank its shard. With a separate
// master copy the rounded parameters are not saved: they follow from it. Frozen ones have none.
Program expand_save(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                    const std::vector<Booking>& persistent) {
  ProgramBuilder builder(input, layers, set, persistent, "save", std::vector<int64_t>(layers.size(), 0));
  const auto copy = [&](int chunk, int from, Role role, int index, const std::string& name) {
    const int to = builder.book(name, 4 * set.chunks[chunk].owned_elements(), BookingKind::kCheckpoint, Tier::kDisk);
    Instruction& instruction = builder.emit(Op::kCopy, Queue::kToDisk);
    instruction.chunk = chunk;
    instruction.elements = set.chunks[chunk].owned_elements();
    instruction.uses = {{from, Access::kRead, role, index}, {to, Access::kWrite, Role::kMessage, -1}};
  };
  const std::vector<std::string_view> states = optimizer_states(input.optimizer, input.precision);
  const bool has_master = state_index(states, "master") >= 0;
  for (int chunk = 0; chunk < static_cast<int>(set.chunks.size()); ++chunk) {
    const Chunk& entry = set.chunks[chunk];
    if (!entry.saved_here()) continue;
    if (!has_master || !entry.trainable)
      copy(chunk, set.parameter_booking[chunk], Role::kParameter, chunk, entry.name + ".parameters.saved");
    for (size_t state = 0; state < set.state_booking[chunk].size(); ++state)
      copy(chunk, set.state_booking[chunk][state], Role::kState, static_cast<int>(state),
           fmt::format("{}.{}.saved", entry.name, states[state]));
  }
  Program program = builder.finish();
  program.groups = builder.groups();
  return program;
}

}  // namespace strata

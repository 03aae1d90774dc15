// SPDX-License-Identifier: Apache-2.0
// Where ranks change how they share the tokens of a micro-batch. Between layers that share them differently, the first
// layer's ranks complete the tensor, and every rank gets the rows that are its own in the second layer from one of
// those that have them. Context-parallel ranks that share heads in attention's core (Jacobs et al., 2023) give each
// other their tokens' columns before it, and its results back.
#include <numeric>

#include "strata/base/error.h"
#include "strata/program/builder.h"

namespace strata {

using namespace attention_tensor;

// The smallest set of ranks of a stage that have the same samples in both layers.
int ProgramBuilder::exchange_group(int layer, int other_layer) {
  const LayerPlace& place = at(layer);
  const int64_t size = place_.stage_ranks / std::gcd(place.dp, at(other_layer).dp);
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), static_cast<int>(place.first_rank + place_.index / size * size));
  return group("exchange", std::move(ranks));
}

Instruction& ProgramBuilder::exchange(int from_layer, int from, int to_layer, int to, int micro_batch) {
  const bool within = from_layer == to_layer;
  // Every rank that has rows in the second layer has them in the first.
  const bool local = !within && at(from_layer).cp == 1 && at(to_layer).dp % at(from_layer).dp == 0;
  const int given = instance(from_layer, from, micro_batch);
  const int arrived = book_tensor(to_layer, to, micro_batch);
  const int over = within ? context_group(from_layer) : exchange_group(from_layer, to_layer);
  Instruction& exchange = emit(local ? Op::kCopy : Op::kCollective, local ? Queue::kCompute : Queue::kContextGroup);
  exchange.collective = CollectiveKind::kReshard;
  exchange.group = over;
  exchange.layer = from_layer;
  exchange.reader = to_layer;
  exchange.micro_batch = micro_batch;
  exchange.uses = {{given, Access::kRead, Role::kTensor, from}, {arrived, Access::kWrite, Role::kTensor, to}};
  if (!local && (at(from_layer).cp > 1 || at(to_layer).cp > 1)) {  // what goes to one rank does not lie together
    const int scratch = book(
        fmt::format("{}.{}.mb{}.exchange", layers_[to_layer].name, layers_[to_layer].tensors[to].name, micro_batch),
        program_.bookings[given].bytes + program_.bookings[arrived].bytes, BookingKind::kWorkspace);
    exchange.uses.push_back({scratch, Access::kWrite, Role::kWorkspace, -1});
  }
  return exchange;
}

void ProgramBuilder::reshard(int from_layer, int from, int to_layer, int to, int micro_batch) {
  bind(from_layer, from, micro_batch, complete(from_layer, from, micro_batch));
  exchange(from_layer, from, to_layer, to, micro_batch).elements = layers_[from_layer].tensors[from].width *
                                                                   input_.seq * stage_samples(input_.plan) /
                                                                   std::gcd(at(from_layer).dp, at(to_layer).dp);
  if (sequence_parallel(to_layer)) keep_part(to_layer, to, micro_batch);
}

// Between this rank's tokens of all columns and all tokens of its heads' columns.
void ProgramBuilder::exchange_heads(int layer, int from, int to, int micro_batch) {
  exchange(layer, from, layer, to, micro_batch).elements =
      layers_[layer].tensors[from].width / at(layer).tp *
      batch_capacity(input_, core_split(input_.plan.layers[layer])).tokens;
}

// Backward reads what the core read and wrote, and not qkv as it was before.
void ProgramBuilder::heads_core_forward(int layer, int micro_batch) {
  instance(layer, kQkv, micro_batch);
  exchange_heads(layer, kQkv, kQkvHeads, micro_batch);
  instances_.erase({layer, kQkv, micro_batch});
  append_run(layer, attention_segment::kHeads, Direction::kForward,
             layers_[layer].segments[attention_segment::kHeads].forward, micro_batch);
  exchange_heads(layer, kAttendedHeads, kAttended, micro_batch);
}

void ProgramBuilder::heads_core_backward(int layer, int micro_batch) {
  if (!instances_.contains({layer, kQkvHeads, micro_batch})) heads_core_forward(layer, micro_batch);
  exchange_heads(layer, kDattended, kDattendedHeads, micro_batch);
  append_run(layer, attention_segment::kHeads, Direction::kBackwardInput,
             layers_[layer].segments[attention_segment::kHeads].backward_input, micro_batch);
  exchange_heads(layer, kDqkvHeads, kDqkv, micro_batch);
}

}  // namespace strata

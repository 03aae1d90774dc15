// SPDX-License-Identifier: Apache-2.0
// Activations between layers that share the tokens of a micro-batch differently. The first layer's ranks complete the
// tensor; every rank then gets the rows that are its own in the second layer, from one of those that have them.
#include <numeric>

#include "strata/base/error.h"
#include "strata/program/builder.h"

namespace strata {

// The smallest set of ranks of a stage that have the same samples in both layers.
int ProgramBuilder::exchange_group(int layer, int other_layer) {
  const LayerPlace& place = at(layer);
  const int64_t size = place_.stage_ranks / std::gcd(place.dp, at(other_layer).dp);
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), static_cast<int>(place.first_rank + place_.index / size * size));
  return group("exchange", std::move(ranks));
}

void ProgramBuilder::reshard(int from_layer, int from, int to_layer, int to, int micro_batch) {
  const int whole = complete(from_layer, from, micro_batch);
  const int arrived = book_tensor(to_layer, to, micro_batch);
  const int over = exchange_group(from_layer, to_layer);
  Instruction& reshard = emit(Op::kCollective, Queue::kContextGroup);
  reshard.collective = CollectiveKind::kReshard;
  reshard.group = over;
  reshard.layer = from_layer;
  reshard.reader = to_layer;
  reshard.micro_batch = micro_batch;
  reshard.elements = tensor_elements(from_layer, from) / capacity_tokens(from_layer) * input_.seq *
                     stage_samples(input_.plan) / std::gcd(at(from_layer).dp, at(to_layer).dp);
  reshard.uses = {{whole, Access::kRead, Role::kTensor, from}, {arrived, Access::kWrite, Role::kTensor, to}};
  if (at(from_layer).cp > 1 || at(to_layer).cp > 1) {  // rows that go to one rank do not lie together
    const int scratch = book(fmt::format("{}.{}.mb{}.exchange", layers_[to_layer].name,
                                         layers_[to_layer].tensors[to].name, micro_batch),
                             program_.bookings[whole].bytes + program_.bookings[arrived].bytes,
                             BookingKind::kWorkspace);
    reshard.uses.push_back({scratch, Access::kWrite, Role::kWorkspace, -1});
  }
  if (sequence_parallel(to_layer)) keep_part(to_layer, to, micro_batch);
}

}  // namespace strata

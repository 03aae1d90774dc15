// SPDX-License-Identifier: Apache-2.0
// The attention core under context parallelism. Keys and values travel around the ring of the group: while a rank
// attends those of one rank, they are passed on. The first slice is its own; later ones are added. Backward sends them
// around again, and behind them their gradients, to which every rank adds; one step more brings these home.
#include "strata/program/builder.h"

namespace strata {

using namespace attention_tensor;

bool ProgramBuilder::is_split_core(int layer, int segment) const {
  return at(layer).cp > 1 && layers_[layer].kind == LayerKind::kAttention && segment == attention_segment::kCore;
}

int ProgramBuilder::context_group(int layer) {
  const LayerPlace& place = at(layer);
  std::vector<int> ranks;
  for (int64_t context = 0; context < place.cp; ++context)
    ranks.push_back(place.rank(place.data, context, place.tensor));
  return group("context", std::move(ranks));
}

// The context rank whose slice is here after so many steps.
int ProgramBuilder::slice_after(int layer, int64_t step) const {
  return static_cast<int>((at(layer).context - step + at(layer).cp) % at(layer).cp);
}

// Passes a tensor of a slice on and books the one that arrives, which takes its name.
void ProgramBuilder::rotate(int layer, int tensor, int micro_batch, int slice) {
  const int here = instance(layer, tensor, micro_batch);
  const int arriving = book_tensor(layer, tensor, micro_batch);
  const int over = context_group(layer);
  Instruction& rotate = emit(Op::kCollective, Queue::kContextGroup);
  rotate.collective = CollectiveKind::kRotate;
  rotate.group = over;
  rotate.layer = layer;
  rotate.micro_batch = micro_batch;
  rotate.slice = slice;
  rotate.elements = tensor_elements(layer, tensor);
  rotate.uses = {{here, Access::kRead, Role::kMessage, -1}, {arriving, Access::kWrite, Role::kMessage, -1}};
}

// One segment of the split core. From the second slice on, what it writes holds the results of those before.
void ProgramBuilder::run_slice(int layer, int segment, Direction direction, int micro_batch, int64_t step) {
  DirectionDecl uses = direction_of(layers_[layer].segments[segment], direction);
  if (segment == attention_segment::kSlice && step > 0)
    uses.reads.insert(uses.reads.end(), uses.writes.begin(), uses.writes.end());
  append_run(layer, segment, direction, uses, micro_batch).slice = slice_after(layer, step);
}

// Runs the slice that is here while the keys and values go on.
void ProgramBuilder::attend_slice(int layer, Direction direction, int micro_batch, int64_t step) {
  const int here = instance(layer, kKv, micro_batch);
  const bool more = step + 1 < at(layer).cp;
  if (more) rotate(layer, kKv, micro_batch, slice_after(layer, step));
  const int arriving = instance(layer, kKv, micro_batch);
  bind(layer, kKv, micro_batch, here);
  run_slice(layer, attention_segment::kSlice, direction, micro_batch, step);
  bind(layer, kKv, micro_batch, arriving);
}

void ProgramBuilder::split_core_forward(int layer, int micro_batch) {
  run_slice(layer, attention_segment::kKeys, Direction::kForward, micro_batch, 0);
  for (int64_t step = 0; step < at(layer).cp; ++step) attend_slice(layer, Direction::kForward, micro_batch, step);
  run_slice(layer, attention_segment::kFinish, Direction::kForward, micro_batch, 0);
}

void ProgramBuilder::split_core_backward(int layer, int micro_batch) {
  for (int tensor : {kAttended, kLse}) instance(layer, tensor, micro_batch);  // recomputed before the ring begins
  run_slice(layer, attention_segment::kKeys, Direction::kForward, micro_batch, 0);
  for (int64_t step = 0; step < at(layer).cp; ++step) {
    attend_slice(layer, Direction::kBackwardInput, micro_batch, step);
    rotate(layer, kDkv, micro_batch, slice_after(layer, step));
  }
  run_slice(layer, attention_segment::kFinish, Direction::kBackwardInput, micro_batch, 0);
}

}  // namespace strata

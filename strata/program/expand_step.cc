// SPDX-License-Identifier: Apache-2.0
#include "strata/program/builder.h"
#include "strata/program/pipeline.h"
#include "strata/program/place.h"

namespace strata {
namespace {

class StepExpander {
 public:
  StepExpander(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
               const std::vector<Booking>& persistent)
      : input_(input),
        layers_(layers),
        set_(set),
        builder_(input, layers, set, persistent, "step", micro_batch_capacities(input)),
        place_(builder_.place()),
        owned_gradient_(set.chunks.size(), -1) {}

  Program expand() {
    Instruction& reset = builder_.emit(Op::kScalar, Queue::kCompute);
    reset.scalar = ScalarOp::kReset;
    reset.uses.push_back({set_.scalars_booking, Access::kReadWrite, Role::kScalars, -1});
    const PipelineShape shape{input_.plan.order, place_.stages, input_.plan.accumulation};
    for (const StageStep& step : stage_steps(shape, layer_ranges(input_.plan), place_.stage)) {
      if (step.action == StageAction::kSend) send(step);
      if (step.action == StageAction::kReceive) receive(step);
      if (step.action == StageAction::kWork) work(step.item);
    }
    exchange_tied_gradients();
    norms();
    for (int chunk : trainable_chunks()) update(chunk);
    return_tied_values();
    for (int chunk : trainable_chunks()) gather_updated(chunk);
    return place_gathers(builder_.finish());
  }

 private:
  int neighbour(int64_t stage) const { return place_.rank_of_stage(stage); }
  const LayerRange& range_of(const ScheduleItem& item) const { return place_.ranges[item.range]; }

  std::vector<int> trainable_chunks() const {
    std::vector<int> chunks;
    for (size_t index = 0; index < set_.chunks.size(); ++index)
      if (set_.chunks[index].trainable) chunks.push_back(static_cast<int>(index));
    return chunks;
  }

  void work(const ScheduleItem& item) {
    if (item.work == Work::kForward) {
      forward(range_of(item), item.micro_batch);
    } else {
      backward(range_of(item), item.micro_batch, item.work);
    }
  }

  void forward(const LayerRange& range, int micro_batch) {
    for (int layer = range.first_layer; layer < range.end_layer; ++layer) {
      if (layers_[layer].kind == LayerKind::kHead) return;  // forward and backward in one
      builder_.forward_layer(layer, Direction::kForward, micro_batch);
      if (place_.holds(layer + 1)) builder_.hand_over_output(layer, micro_batch);
    }
  }

  void backward(const LayerRange& range, int micro_batch, Work part) {
    for (int layer = range.end_layer - 1; layer >= range.first_layer; --layer) {
      builder_.backward_layer(layer, micro_batch, part);
      if (part != Work::kBackwardWeight && place_.holds(layer - 1)) builder_.hand_over_gradient(layer, micro_batch);
      // The head's fused backward writes its gradient in the input part.
      const Work writer = layers_[layer].kind == LayerKind::kHead ? Work::kBackwardInput : Work::kBackwardWeight;
      if (part == Work::kBackward || part == writer) reduce_gradients(layer, micro_batch);
    }
  }

  void send(const StageStep& step) {
    const LayerRange& range = range_of(step.item);
    const bool forward = step.item.work == Work::kForward;
    const int layer = forward ? range.end_layer - 1 : range.first_layer;
    const int tensor = forward ? layers_[layer].output : layers_[layer].input_gradient;
    if (tensor < 0) return;  // nothing below is trained
    pass(Op::kSend, step, layer, tensor, builder_.passed(layer, tensor, step.item.micro_batch));
  }

  void receive(const StageStep& step) {
    const LayerRange& range = range_of(step.item);
    const bool forward = step.item.work == Work::kForward;
    const int layer = forward ? range.first_layer - 1 : range.end_layer;
    const int tensor = forward ? layers_[layer].output : layers_[layer].input_gradient;
    if (tensor < 0) return;  // nothing here or below is trained
    const int micro_batch = step.item.micro_batch;
    pass(Op::kRecv, step, layer, tensor, builder_.book_passed(layer, tensor, micro_batch));
    forward ? builder_.hand_over_output(layer, micro_batch) : builder_.hand_over_gradient(layer, micro_batch);
  }

  // `tensor` of `layer`, as it leaves that layer.
  void pass(Op op, const StageStep& step, int layer, int tensor, int booking) {
    const int over = builder_.passed_group(layer);
    Instruction& instruction =
        message(op, step.item.work == Work::kForward ? Queue::kForwardPipe : Queue::kBackwardPipe,
                neighbour(step.peer_stage), builder_.tensor_elements(layer, tensor), step.item.micro_batch, booking,
                op == Op::kSend ? Access::kRead : Access::kWrite);
    instruction.layer = layer;
    instruction.group = over;
  }

  Instruction& message(Op op, Queue queue, int peer, int64_t elements, int micro_batch, int booking, Access access) {
    Instruction& instruction = builder_.emit(op, queue);
    instruction.peer = peer;
    instruction.elements = elements;
    instruction.micro_batch = micro_batch;
    instruction.uses.push_back({booking, access, Role::kMessage, -1});
    return instruction;
  }

  // After the last micro-batch, or every one when the plan says so and the gradient is sharded.
  void reduce_gradients(int layer, int micro_batch) {
    const bool last = micro_batch == input_.plan.accumulation - 1;
    for (int index : trainable_chunks()) {
      const Chunk& chunk = set_.chunks[index];
      const bool mine = chunk.layer == layer && !chunk.tensors.empty();
      const bool each = input_.plan.reduce == GradientReduce::kEach && chunk.zero >= 2;
      if (mine && (last || each)) reduce_chunk(index);
    }
  }

  void reduce_chunk(int index) {
    const Chunk& chunk = set_.chunks[index];
    const int full = builder_.gradient_booking(index);
    if (chunk.num_shards == 1) {
      owned_gradient_[index] = full;
      return;
    }
    const int over = builder_.chunk_group(chunk);
    if (chunk.zero < 2) {
      collective(chunk.zero == 0 ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter, over, index,
                 {{full, Access::kReadWrite}});
      owned_gradient_[index] = full;
      return;
    }
    const bool first = owned_gradient_[index] < 0;
    if (first)
      owned_gradient_[index] =
          builder_.book(chunk.name + ".gradient_shard", 4 * chunk.shard_elements(), BookingKind::kGradient);
    collective(CollectiveKind::kReduceScatter, over, index,
               {{full, Access::kReadWrite}, {owned_gradient_[index], first ? Access::kWrite : Access::kReadWrite}});
    builder_.start_new_gradient(index);
  }

  void collective(CollectiveKind kind, int group, int chunk, const std::vector<std::pair<int, Access>>& buffers) {
    Instruction& instruction = builder_.emit(Op::kCollective, Queue::kDataGroup);
    instruction.collective = kind;
    instruction.group = group;
    instruction.chunk = chunk;
    instruction.elements = set_.chunks[chunk].elements;
    for (const auto& [booking, access] : buffers) instruction.uses.push_back({booking, access, Role::kMessage, chunk});
  }

  // The stage that borrows the token table sends its part of the gradient to the owner, which adds it.
  void exchange_tied_gradients() {
    for (int index : trainable_chunks()) {
      const Chunk& chunk = set_.chunks[index];
      if (chunk.tied_peer_stage < 0) continue;
      message(chunk.tied_alias ? Op::kSend : Op::kRecv, Queue::kBackwardPipe, neighbour(chunk.tied_peer_stage),
              chunk.owned_elements(), -1, owned_gradient_[index],
              chunk.tied_alias ? Access::kRead : Access::kReadWrite);
      builder_.last().chunk = index;
    }
  }

  void return_tied_values() {
    for (int index : trainable_chunks()) {
      const Chunk& chunk = set_.chunks[index];
      if (chunk.tied_peer_stage < 0) continue;
      message(chunk.tied_alias ? Op::kRecv : Op::kSend, Queue::kForwardPipe, neighbour(chunk.tied_peer_stage),
              chunk.owned_elements(), -1, set_.parameter_booking[index],
              chunk.tied_alias ? Access::kWrite : Access::kRead);
      builder_.last().chunk = index;
    }
  }

  bool counts_in_norm(const Chunk& chunk) const { return !chunk.tied_alias && (chunk.zero > 0 || chunk.shard == 0); }

  void norms() {
    for (int index : trainable_chunks()) {
      if (!counts_in_norm(set_.chunks[index])) continue;
      Instruction& norm = builder_.emit(Op::kScalar, Queue::kCompute);
      norm.scalar = ScalarOp::kChunkNorm;
      norm.chunk = index;
      norm.uses = {{owned_gradient_[index], Access::kRead, Role::kGradient, norm.chunk},
                   {set_.norms_booking, Access::kReadWrite, Role::kScalars, -1},
                   {set_.scalars_booking, Access::kReadWrite, Role::kScalars, -1}};
    }
    if (input_.plan.num_ranks > 1) {
      Instruction& sum = builder_.emit(Op::kCollective, Queue::kDataGroup);
      sum.collective = CollectiveKind::kAllReduce;
      sum.elements = 2;  // loss sum and squared norm
      sum.uses.push_back({set_.scalars_booking, Access::kReadWrite, Role::kScalars, -1});
      sum.group = builder_.world_group();
    }
    Instruction& finish = builder_.emit(Op::kScalar, Queue::kCompute);
    finish.scalar = ScalarOp::kFinishNorm;
    finish.uses = {{set_.norms_booking, Access::kRead, Role::kScalars, -1},
                   {set_.scalars_booking, Access::kReadWrite, Role::kScalars, -1}};
  }

  void update(int index) {
    if (set_.chunks[index].tied_alias) return;
    Instruction& update = builder_.emit(Op::kUpdate, Queue::kCompute);
    update.chunk = index;
    update.if_finite = true;
    update.uses = {{owned_gradient_[index], Access::kRead, Role::kGradient, index},
                   {set_.parameter_booking[index], Access::kReadWrite, Role::kParameter, index},
                   {set_.scalars_booking, Access::kRead, Role::kScalars, -1}};
    for (size_t state = 0; state < set_.state_booking[index].size(); ++state)
      update.uses.push_back(
          {set_.state_booking[index][state], Access::kReadWrite, Role::kState, static_cast<int>(state)});
  }

  void gather_updated(int index) {
    const Chunk& chunk = set_.chunks[index];
    if (chunk.num_shards == 1 || chunk.zero == 0 || chunk.zero == 3) return;
    collective(CollectiveKind::kAllGather, builder_.chunk_group(chunk), index,
               {{set_.parameter_booking[index], Access::kReadWrite}});
  }

  Program place_gathers(Program program) {
    std::vector<int> groups;
    for (const Chunk& chunk : set_.chunks) groups.push_back(builder_.chunk_group(chunk));
    program.groups = builder_.groups();
    place_chunks(program, set_, groups, gather_units(input_.plan));
    return program;
  }

  const CompileInput& input_;
  const std::vector<LayerDecl>& layers_;
  const ProgramSet& set_;
  ProgramBuilder builder_;
  RankPlace place_;
  std::vector<int> owned_gradient_;  // by chunk: what norm and update read
};

}  // namespace

Program expand_step(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                    const std::vector<Booking>& persistent) {
  return StepExpander(input, layers, set, persistent).expand();
}

}  // namespace strata

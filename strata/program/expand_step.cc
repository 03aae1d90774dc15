// SPDX-License-Identifier: Apache-2.0
#include "strata/program/builder.h"
#include "strata/program/place.h"
#include "strata/program/schedule.h"

namespace strata {
namespace {

class StepExpander {
 public:
  StepExpander(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
               const std::vector<Booking>& persistent)
      : input_(input),
        layers_(layers),
        set_(set),
        builder_(input, layers, set, persistent, "step", input.plan.micro_batch * input.seq),
        place_(builder_.place()),
        owned_gradient_(set.chunks.size(), -1) {}

  Program expand() {
    Instruction& reset = builder_.emit(Op::kScalar, Queue::kCompute);
    reset.scalar = ScalarOp::kReset;
    reset.uses.push_back({set_.scalars_booking, Access::kReadWrite, Role::kScalars, -1});
    const std::vector<ScheduleItem> order =
        one_forward_one_backward(place_.stage, place_.stages, input_.plan.accumulation);
    for (size_t index = 0; index < order.size(); ++index) {
      if (!order[index].backward) {
        forward(order[index].micro_batch);
        continue;
      }
      backward(order[index].micro_batch);
      // The stage before sends its next output first and then wants this gradient. In this order the lists of all ranks
      // run to the end even one instruction at a time, so no wait that packing adds can stop them.
      if (index + 1 < order.size() && !order[index + 1].backward) receive_input(order[index + 1].micro_batch);
      send_gradient(order[index].micro_batch);
    }
    exchange_tied_gradients();
    norms();
    for (size_t chunk = 0; chunk < set_.chunks.size(); ++chunk) update(static_cast<int>(chunk));
    return_tied_values();
    for (size_t chunk = 0; chunk < set_.chunks.size(); ++chunk) gather_updated(static_cast<int>(chunk));
    return place_gathers(builder_.finish());
  }

 private:
  bool is_last_stage() const { return place_.stage == place_.stages - 1; }
  int neighbour(int64_t stage) const { return place_.global_rank(stage, place_.data, place_.tensor); }
  int64_t activation_elements() const { return input_.model.hidden * input_.plan.micro_batch * input_.seq; }

  void receive_input(int micro_batch) {
    if (place_.stage == 0 || micro_batch < num_received_) return;
    const int layer = place_.first_layer;
    message(Op::kRecv, Queue::kForwardPipe, neighbour(place_.stage - 1), activation_elements(), micro_batch,
            builder_.book_tensor(layer, layers_[layer].input, micro_batch));
    num_received_ = micro_batch + 1;
  }

  void forward(int micro_batch) {
    receive_input(micro_batch);
    for (int layer = place_.first_layer; layer < place_.end_layer; ++layer) {
      if (layers_[layer].kind == LayerKind::kHead) return;  // forward and backward in one
      builder_.forward_layer(layer, micro_batch);
      if (layer + 1 < place_.end_layer) builder_.hand_over_output(layer, micro_batch);
    }
    const int last = place_.end_layer - 1;
    message(Op::kSend, Queue::kForwardPipe, neighbour(place_.stage + 1), activation_elements(), micro_batch,
            builder_.complete(last, layers_[last].output, micro_batch));
  }

  void backward(int micro_batch) {
    if (!is_last_stage()) {
      const int layer = place_.end_layer - 1;
      message(Op::kRecv, Queue::kBackwardPipe, neighbour(place_.stage + 1), activation_elements(), micro_batch,
              builder_.book_tensor(layer, layers_[layer].output_gradient, micro_batch));
    }
    for (int layer = place_.end_layer - 1; layer >= place_.first_layer; --layer) {
      builder_.backward_layer(layer, micro_batch);
      if (layer > place_.first_layer) builder_.hand_over_gradient(layer, micro_batch);
      reduce_gradients(layer, micro_batch);
    }
  }

  void send_gradient(int micro_batch) {
    if (place_.stage == 0) return;
    const int first = place_.first_layer;
    message(Op::kSend, Queue::kBackwardPipe, neighbour(place_.stage - 1), activation_elements(), micro_batch,
            builder_.complete(first, layers_[first].input_gradient, micro_batch));
  }

  void message(Op op, Queue queue, int peer, int64_t elements, int micro_batch, int booking, Access access) {
    Instruction& instruction = builder_.emit(op, queue);
    instruction.peer = peer;
    instruction.elements = elements;
    instruction.micro_batch = micro_batch;
    instruction.uses.push_back({booking, access, Role::kMessage, -1});
  }
  void message(Op op, Queue queue, int peer, int64_t elements, int micro_batch, int booking) {
    message(op, queue, peer, elements, micro_batch, booking, op == Op::kSend ? Access::kRead : Access::kWrite);
  }

  // After the last micro-batch, or every one when the plan says so and the gradient is sharded.
  void reduce_gradients(int layer, int micro_batch) {
    const bool last = micro_batch == input_.plan.accumulation - 1;
    for (size_t index = 0; index < set_.chunks.size(); ++index) {
      const Chunk& chunk = set_.chunks[index];
      const bool mine = chunk.layer == layer && !chunk.tensors.empty();
      const bool each = input_.plan.reduce == GradientReduce::kEach && chunk.zero >= 2;
      if (mine && (last || each)) reduce_chunk(static_cast<int>(index));
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
    for (size_t index = 0; index < set_.chunks.size(); ++index) {
      const Chunk& chunk = set_.chunks[index];
      if (chunk.tied_peer_stage < 0) continue;
      message(chunk.tied_alias ? Op::kSend : Op::kRecv, Queue::kBackwardPipe, neighbour(chunk.tied_peer_stage),
              chunk.owned_elements(), -1, owned_gradient_[index],
              chunk.tied_alias ? Access::kRead : Access::kReadWrite);
    }
  }

  void return_tied_values() {
    for (size_t index = 0; index < set_.chunks.size(); ++index) {
      const Chunk& chunk = set_.chunks[index];
      if (chunk.tied_peer_stage < 0) continue;
      message(chunk.tied_alias ? Op::kRecv : Op::kSend, Queue::kForwardPipe, neighbour(chunk.tied_peer_stage),
              chunk.owned_elements(), -1, set_.parameter_booking[index]);
    }
  }

  bool counts_in_norm(const Chunk& chunk) const {
    return chunk.first_copy && !chunk.tied_alias && (chunk.zero > 0 || chunk.shard == 0);
  }

  void norms() {
    for (size_t index = 0; index < set_.chunks.size(); ++index) {
      if (!counts_in_norm(set_.chunks[index])) continue;
      Instruction& norm = builder_.emit(Op::kScalar, Queue::kCompute);
      norm.scalar = ScalarOp::kChunkNorm;
      norm.chunk = static_cast<int>(index);
      norm.uses = {{owned_gradient_[index], Access::kRead, Role::kGradient, norm.chunk},
                   {set_.norms_booking, Access::kReadWrite, Role::kScalars, -1},
                   {set_.scalars_booking, Access::kReadWrite, Role::kScalars, -1}};
    }
    if (place_.stages * place_.dp * place_.tp > 1) {
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
    place_chunks(program, set_, groups);
    return program;
  }

  const CompileInput& input_;
  const std::vector<LayerDecl>& layers_;
  const ProgramSet& set_;
  ProgramBuilder builder_;
  RankPlace place_;
  int num_received_ = 0;             // inputs of micro-batches from the stage before
  std::vector<int> owned_gradient_;  // by chunk: what norm and update read
};

}  // namespace

Program expand_step(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                    const std::vector<Booking>& persistent) {
  return StepExpander(input, layers, set, persistent).expand();
}

}  // namespace strata

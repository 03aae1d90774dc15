// SPDX-License-Identifier: Apache-2.0
// Builds one program: books tensors as they are written, finds the booking a read means, recomputes what was not kept,
// and inserts the communication where a tensor's layout is not the one wanted. Used only by expand. Pure.
#pragma once

#include <map>
#include <set>
#include <tuple>

#include "strata/program/expand.h"
#include "strata/program/schedule.h"

namespace strata {

class ProgramBuilder {
 public:
  ProgramBuilder(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                 const std::vector<Booking>& persistent, std::string name, std::vector<int64_t> capacity_tokens);

  const RankPlace& place() const { return place_; }
  // The program so far; groups may still be added to the builder afterwards.
  Program finish() { return std::move(program_); }
  const std::vector<RankGroup>& groups() const { return groups_; }

  int book(std::string name, int64_t bytes, BookingKind kind, Tier tier = Tier::kDevice);
  int group(const std::string& name, std::vector<int> ranks);
  int tensor_group(int layer);
  int chunk_group(const Chunk& chunk);
  int world_group();
  Instruction& emit(Op op, Queue queue);
  Instruction& last() { return program_.instructions.back(); }

  // All segments forward (also in generation), those by tile in turns.
  void forward_layer(int layer, Direction direction, int micro_batch);
  // All segments backward, last first: one part, or both of each in turn. The fused form counts as the input part.
  void backward_layer(int layer, int micro_batch, Work part);
  // The output of one layer becomes the input of the next, and its gradient the other way; under sequence parallelism
  // as this rank's part. Where the layers share the tokens differently, they change hands.
  void hand_over_output(int layer, int micro_batch);
  void hand_over_gradient(int layer, int micro_batch);

  void bind(int layer, int tensor, int micro_batch, int booking) { instances_[{layer, tensor, micro_batch}] = booking; }
  // The booking of a tensor with complete values: reduces partial sums first.
  int complete(int layer, int tensor, int micro_batch);
  // A tensor as it passes from layer to layer: complete, or this rank's part under sequence parallelism.
  int passed(int layer, int tensor, int micro_batch);
  // Books one that arrives from another stage, as this rank's place there has it.
  int book_passed(int layer, int tensor, int micro_batch);
  // The group over which passed tensors of a layer are shared out; -1: they are whole.
  int passed_group(int layer) { return sequence_parallel(layer) ? tensor_group(layer) : -1; }
  int64_t tensor_elements(int layer, int tensor) const;

  // The buffer that backward writes a chunk's gradient into; booked at the first write.
  int gradient_booking(int chunk);
  // The next write of this chunk's gradient sets a new buffer.
  void start_new_gradient(int chunk);
  // Chunk and tensor of a layer's parameter on this rank.
  std::pair<int, int> find_parameter(int layer, int parameter) const;

 private:
  using Key = std::tuple<int, int, int>;

  // One segment of a layer: reads are made available first, writes are booked.
  void run(int layer, int segment, Direction direction, int micro_batch);
  const LayerPlace& at(int layer) const { return place_.layers[layer]; }
  int64_t capacity_tokens(int layer) const { return program_.capacity_tokens[layer]; }
  int64_t element_bytes(int layer, int tensor) const;
  bool takes_part(int layer, const SegmentDecl& segment, Direction direction) const;
  int producer_of(int layer, int tensor) const;
  void start_tile(int layer, int micro_batch, int tile);
  bool sequence_parallel(int layer) const { return input_.plan.sequence_parallel && at(layer).tp > 1; }
  int book_tensor(int layer, int tensor, int micro_batch);
  int book_part(int layer, int tensor, int micro_batch);
  // Replaces a tensor by this rank's part of it.
  int keep_part(int layer, int tensor, int micro_batch);
  int gather(int layer, int tensor, int micro_batch, int part);
  void hand_over(int from_layer, int from, int to_layer, int to, int micro_batch);
  // Rows change hands: from a tensor as its layer's ranks share it to another one (reshard.cc).
  void reshard(int from_layer, int from, int to_layer, int to, int micro_batch);
  Instruction& exchange(int from_layer, int from, int to_layer, int to, int micro_batch);
  int exchange_group(int layer, int other_layer);
  Instruction& emit_between_parts(Op op, Queue queue, int layer, int tensor, int micro_batch);
  bool is_dropped(int layer, int tensor) const;
  int instance(int layer, int tensor, int micro_batch);
  void recompute(int layer, int tensor, int micro_batch);
  void use_tensors(Instruction& instruction, const DirectionDecl& direction, int layer, int micro_batch);
  void use_parameters(Instruction& instruction, int layer);
  void drop_activations(int layer, int micro_batch);
  Instruction& append_run(int layer, int segment, Direction direction, const DirectionDecl& tensors, int micro_batch);

  // Context parallelism (context.cc).
  bool is_split_core(int layer, int segment) const;
  int context_group(int layer);
  int slice_after(int layer, int64_t step) const;
  void rotate(int layer, int tensor, int micro_batch, int slice);
  void run_slice(int layer, int segment, Direction direction, int micro_batch, int64_t step);
  void attend_slice(int layer, Direction direction, int micro_batch, int64_t step);
  void split_core_forward(int layer, int micro_batch);
  void split_core_backward(int layer, int micro_batch);
  // Of ranks that share heads (reshard.cc).
  void exchange_heads(int layer, int from, int to, int micro_batch);
  void heads_core_forward(int layer, int micro_batch);
  void heads_core_backward(int layer, int micro_batch);

  const CompileInput& input_;
  const std::vector<LayerDecl>& layers_;
  const ProgramSet& set_;
  RankPlace place_;
  Program program_;
  std::vector<RankGroup> groups_;
  std::map<Key, int> instances_;
  std::set<int> partial_;        // bookings that hold partial sums, or this rank's of a stacked tensor
  std::set<int> parts_;          // bookings that hold this rank's part of a tensor
  std::map<int, int> gathered_;  // the whole of a part, while its layer runs
  int num_tiles_ = 1;            // of the head
  int tile_ = 0;                 // of the runs by tile
  std::vector<int> gradient_;
  std::set<std::pair<int, int>> gradient_written_;  // (chunk, tensor) that hold a gradient already
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// Runs the instructions of a program that other ranks take part in: collectives, sends and receives, and copies of this
// rank's part of a tensor. Sums are in rank order (comm.h), so that sharding, chunks and buckets do not change a bit.
// Messages of activations have the extent of the micro-batch, not its capacity.
#pragma once

#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "strata/comm/comm.h"
#include "strata/exec/row_exchange.h"
#include "strata/program/compile.h"
#include "strata/spec/batch_sheet.h"

namespace strata {

class Communication {
 public:
  // Makes the groups of all programs: called by all ranks. References must outlive the object. Without a comm (one
  // rank), a program that communicates is refused.
  Communication(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                std::span<std::byte> arena, Comm* comm);

  // Complete on return; called by the thread of the instruction's queue.
  void run(const Program& program, const Instruction& instruction, const BatchSheet& sheet);

 private:
  struct Message {
    std::byte* data = nullptr;
    DType dtype = DType::kF32;
    int64_t elements = 0;
  };
  using GroupKey = std::tuple<const Program*, int, Queue>;

  void make_groups();
  std::byte* data_of(const Program& program, int booking) const {
    return arena_.data() + program.bookings[booking].offset;
  }
  // The instruction's micro-batch as its layer shares it; null if it has none.
  const MicroBatch* batch_of(const Instruction& instruction, const BatchSheet& sheet) const;
  DType storage() const { return input_.precision == Precision::kF32 ? DType::kF32 : DType::kBF16; }

  PartRange own_part(const Program& program, const Instruction& instruction, int64_t elements) const;
  // The whole of the parts in the last booking; the own part is in the first of two, or already in its place.
  void gather(const Program& program, const Instruction& instruction, const Group& group, DType dtype,
              int64_t elements);
  void exchange_activation(const Program& program, const Instruction& instruction, const Group& group, int64_t tokens);
  void copy_part(const Program& program, const Instruction& instruction, int64_t tokens);
  void sum_scalars(const Program& program, const Instruction& instruction, const Group& group);
  void reduce_into_shard(const Program& program, const Instruction& instruction, const Group& group);
  void rotate(const Program& program, const Instruction& instruction, const MicroBatch& batch, const Group& group);
  Holding holding(int rank, int layer, int tensor) const;
  RowExchange row_exchange(const Program& program, const Instruction& instruction, const BatchSheet& sheet) const;
  Message activation(const Program& program, const Instruction& instruction, int64_t tokens) const;
  Message tied_message(const Program& program, const Instruction& instruction) const;
  void receive_and_add(const Instruction& instruction, const Message& message);
  void send_in_pieces(const Instruction& instruction, const Message& message);

  const CompileInput& input_;
  const std::vector<LayerDecl>& layers_;
  const ProgramSet& set_;
  std::span<std::byte> arena_;
  Comm* comm_;
  std::vector<int> split_of_layer_;  // token_splits()
  std::map<GroupKey, Group> groups_;
  std::vector<float> received_;  // one piece of a gradient that is added to another
};

}  // namespace strata

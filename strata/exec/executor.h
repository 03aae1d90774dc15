// SPDX-License-Identifier: Apache-2.0
// Runs a rank's programs: binds every instruction's bookings to memory and calls the function it names. Contains no
// decisions: predicates and numbers come from the table of scalars. Where the plan overlaps, every queue of a program
// has a thread; otherwise instructions run in list order, which respects every wait and lets the programs of all ranks
// run to the end. One caller at a time; with several ranks every rank runs the same program. Complete on return.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "strata/exec/communication.h"
#include "strata/exec/queues.h"
#include "strata/kernels/kernels.h"
#include "strata/optim/update.h"
#include "strata/program/chunks.h"
#include "strata/program/compile.h"
#include "strata/spec/batch_sheet.h"

namespace strata {

// One executed instruction, in microseconds since the executor was made.
struct InstructionTime {
  const Instruction* instruction = nullptr;
  double start_us = 0;
  double duration_us = 0;
};

class Executor {
 public:
  // `arena` is the device tier: set.arena_bytes bytes, zeroed, 64-byte aligned. `comm` is this rank's end, or null when
  // there is one rank. All references must outlive the executor. Called by all ranks.
  Executor(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
           std::span<std::byte> arena, Team& team, Comm* comm);

  StepScalars& scalars() { return *scalars_; }
  std::span<double> norms() { return norms_; }
  // Storage of one micro-batch of a step as the layers of one of token_splits() share it; the batch booking holds
  // `accumulation` of them one after the other, split after split.
  MicroBatchStorage batch_storage(int split, int micro_batch) const;
  // All of them, as BatchSheet::micro_batches has them; of the first `micro_batches`.
  std::vector<MicroBatchStorage> batch_storages(int64_t micro_batches) const;
  MicroBatchStorage decode_storage() const;

  // Runs every instruction. `copy_out` is called for copies to the disk tier, once or in pieces: (file offset, bytes).
  using CopyOut = std::function<void(int64_t offset, std::span<const std::byte> bytes)>;
  void run(const Program& program, const BatchSheet& sheet, const CopyOut& copy_out = {});

  // Records of every instruction from now on; empty vector pointer: off.
  void record_times(std::vector<InstructionTime>* times) { times_ = times; }

  // Views of live state, for loading, export and tests: one parameter as this rank holds it (storage precision; not
  // sharded), its f32 master (without one the parameter), its gradient as the last step left it (valid until the next
  // program runs; empty when it is frozen).
  TensorView parameter(int layer, int index) const;
  TensorView master(int layer, int index) const;
  TensorView gradient(const Program& step, int layer, int index) const;
  std::byte* booking_data(const Program& program, int booking) const {
    return arena_.data() + program.bookings[booking].offset;
  }
  // Global name of the tensor with this index in the norms table.
  const std::string& tensor_name(int index) const;

 private:
  struct Slot {  // where a parameter lies
    int chunk = -1;
    int64_t offset = 0;
    int64_t rows = 0, cols = 0;
  };

  void run_timed(const Program& program, const Instruction& instruction, const BatchSheet& sheet,
                 const CopyOut& copy_out);
  void run_instruction(const Program& program, const Instruction& instruction, const BatchSheet& sheet,
                       const CopyOut& copy_out);
  void communicate(const Program& program, const Instruction& instruction, const BatchSheet& sheet);
  void run_layer(const Program& program, const Instruction& instruction, const BatchSheet& sheet);
  void run_scalar(const Program& program, const Instruction& instruction);
  void run_update(const Program& program, const Instruction& instruction);
  TensorView tensor_view(const Program& program, const Use& use, const Instruction& run, const MicroBatch& batch) const;
  DType storage() const { return input_.precision == Precision::kF32 ? DType::kF32 : DType::kBF16; }

  const CompileInput& input_;
  const std::vector<LayerDecl>& layers_;
  const ProgramSet& set_;
  std::span<std::byte> arena_;
  Team& team_;
  Communication communication_;
  std::vector<ModelSpec> parts_, core_parts_;  // by layer: what this rank computes with
  RankPlace place_;
  std::vector<int> split_of_layer_, split_of_core_;  // token_splits()
  StepScalars* scalars_ = nullptr;
  std::span<double> norms_;
  std::vector<std::vector<Slot>> slots_;               // by layer and parameter
  std::vector<std::vector<OwnedRange>> owned_ranges_;  // by chunk
  std::vector<std::string> tensor_names_;
  std::vector<InstructionTime>* times_ = nullptr;
  std::mutex times_mutex_;
  double origin_us_ = 0;
  QueueThreads queues_;
};

}  // namespace strata

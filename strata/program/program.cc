// SPDX-License-Identifier: Apache-2.0
#include "strata/program/program.h"

#include <algorithm>

#include "strata/base/error.h"

namespace strata {
namespace {

std::string_view collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return "all-reduce";
    case CollectiveKind::kReduceScatter: return "reduce-scatter";
    case CollectiveKind::kAllGather: return "all-gather";
    case CollectiveKind::kRotate: return "rotate";
    case CollectiveKind::kReshard: return "reshard";
  }
  return "?";
}

std::string_view scalar_name(ScalarOp op) {
  switch (op) {
    case ScalarOp::kReset: return "reset";
    case ScalarOp::kChunkNorm: return "chunk-norm";
    case ScalarOp::kFinishNorm: return "finish-norm";
  }
  return "?";
}

}  // namespace

const Program* ProgramSet::find(std::string_view name) const {
  for (const Program& program : programs)
    if (program.name == name) return &program;
  return nullptr;
}

std::string_view queue_name(Queue queue) {
  constexpr std::array<std::string_view, kNumQueues> names = {"compute",      "tensor",        "context", "data",
                                                              "forward-pipe", "backward-pipe", "to-disk"};
  return names[static_cast<size_t>(queue)];
}

std::string_view op_name(Op op) {
  constexpr std::array<std::string_view, 7> names = {"run", "collective", "send", "recv", "copy", "update", "scalar"};
  return names[static_cast<size_t>(op)];
}

std::string_view booking_kind_name(BookingKind kind) {
  constexpr std::array<std::string_view, kNumBookingKinds> names = {
      "parameters", "gradients", "optimizer", "activations", "workspace",
      "gathered",   "batch",     "scalars",   "cache",       "checkpoint"};
  return names[static_cast<size_t>(kind)];
}

std::string instruction_name(const Instruction& instruction, const std::vector<LayerDecl>& layers) {
  switch (instruction.op) {
    case Op::kRun: {
      const LayerDecl& layer = layers[instruction.layer];
      std::string text = fmt::format("run {}.{} {}", layer.name, layer.segments[instruction.segment].name,
                                     direction_name(instruction.direction));
      if (instruction.recomputed >= 0) text += fmt::format(" {}", layer.tensors[instruction.recomputed].name);
      if (instruction.slice >= 0) text += fmt::format(" slice {}", instruction.slice);
      text += fmt::format(" mb{}", instruction.micro_batch);
      if (instruction.num_tiles > 1) text += fmt::format(" tile {} of {}", instruction.tile, instruction.num_tiles);
      return text;
    }
    case Op::kCollective:
      return fmt::format("{} {} elements", collective_name(instruction.collective), instruction.elements);
    case Op::kSend: return fmt::format("send {} elements to rank {}", instruction.elements, instruction.peer);
    case Op::kRecv: return fmt::format("recv {} elements from rank {}", instruction.elements, instruction.peer);
    case Op::kCopy:
      return instruction.queue == Queue::kToDisk ? "copy to disk" : instruction.reader >= 0 ? "copy rows" : "copy part";
    case Op::kUpdate: return fmt::format("update chunk {}", instruction.chunk);
    case Op::kScalar: return fmt::format("scalar {}", scalar_name(instruction.scalar));
  }
  return "?";
}

std::string describe(const Instruction& instruction, const Program& program, const std::vector<LayerDecl>& layers) {
  std::string text = fmt::format("{:<13} {}", queue_name(instruction.queue), instruction_name(instruction, layers));
  if (instruction.op == Op::kCollective) text += fmt::format(" over {}", program.groups[instruction.group].name);
  if (instruction.if_finite) text += " if-finite";
  constexpr std::array<std::string_view, 3> marks = {"<", ">", "+"};
  std::vector<std::string> uses;  // each booking once per access, though a chunk is used once per parameter
  for (const Use& use : instruction.uses) {
    std::string name = fmt::format(" {}{}", marks[static_cast<size_t>(use.access)], program.bookings[use.booking].name);
    if (std::find(uses.begin(), uses.end(), name) == uses.end()) uses.push_back(std::move(name));
  }
  text += fmt::format("{}", fmt::join(uses, ""));
  for (const Wait& wait : instruction.waits) text += fmt::format(" after({}:{})", queue_name(wait.queue), wait.count);
  return text;
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/exec/executor.h"

#include <chrono>
#include <cstring>
#include <new>

#include "strata/base/error.h"
#include "strata/model/segment.h"
#include "strata/optim/decay_groups.h"
#include "strata/program/parts.h"
#include "strata/tensor/f32_values.h"

namespace strata {
namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const Use* find_use(const Instruction& instruction, Role role) {
  for (const Use& use : instruction.uses)
    if (use.role == role) return &use;
  return nullptr;
}

// What this rank owns of every tensor of a chunk, with the tensor's place in the norms table counted from
// `first_tensor`.
std::vector<OwnedRange> owned_ranges(const Chunk& chunk, const std::vector<LayerDecl>& layers,
                                     const OptimizerConfig& optimizer, int first_tensor) {
  std::vector<OwnedRange> ranges;
  const int64_t owned_begin = chunk.owned_begin();
  const int64_t owned_end = owned_begin + chunk.owned_elements();
  for (size_t index = 0; index < chunk.tensors.size(); ++index) {
    const ChunkTensor& tensor = chunk.tensors[index];
    const int64_t begin = std::max(tensor.offset, owned_begin);
    const int64_t end = std::min(tensor.offset + tensor.num_elements(), owned_end);
    if (begin >= end) continue;
    OwnedRange range{};
    range.gradient_begin = chunk.zero >= 2 && chunk.num_shards > 1 ? begin - owned_begin : begin;
    range.parameter_begin = chunk.zero == 3 ? begin - owned_begin : begin;
    range.state_begin = begin - owned_begin;
    range.count = end - begin;
    range.decay = weight_decay_of(layers[tensor.layer].parameters[tensor.parameter], optimizer);
    range.tensor = first_tensor + static_cast<int>(index);
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace

Executor::Executor(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                   std::span<std::byte> arena, Team& team, Comm* comm)
    : input_(input),
      layers_(layers),
      set_(set),
      arena_(arena),
      team_(team),
      communication_(input, layers, set, arena, comm),
      place_(place_of_rank(input.plan, set.rank)),
      origin_us_(now_us()),
      queues_(set.programs, [comm](const std::string& reason) {
        if (comm != nullptr) comm->abort(reason);
      }) {
  STRATA_CHECK(!set.programs.empty() &&
                   static_cast<int64_t>(arena.size()) >= set.arena_bytes[static_cast<size_t>(Tier::kDevice)],
               "arena of {} bytes is too small", arena.size());
  for (const LayerPlan& plan : input.plan.layers) {
    parts_.push_back(tensor_parallel_part(input.model, plan.tp));
    core_parts_.push_back(tensor_parallel_part(input.model, plan.tp * (shares_heads(plan) ? plan.cp : 1)));
    split_of_layer_.push_back(token_split_index(input.plan, token_split(plan)));
    split_of_core_.push_back(token_split_index(input.plan, core_split(plan)));
  }
  const Program& any = set.programs.front();
  scalars_ = new (booking_data(any, set.scalars_booking)) StepScalars();
  norms_ = {reinterpret_cast<double*>(booking_data(any, set.norms_booking)),
            static_cast<size_t>(any.bookings[set.norms_booking].bytes / 8)};
  slots_.resize(layers.size());
  for (size_t layer = 0; layer < layers.size(); ++layer) slots_[layer].resize(layers[layer].parameters.size());
  for (size_t chunk = 0; chunk < set.chunks.size(); ++chunk) {
    owned_ranges_.push_back(
        owned_ranges(set.chunks[chunk], layers, input.optimizer, static_cast<int>(tensor_names_.size())));
    for (const ChunkTensor& tensor : set.chunks[chunk].tensors) {
      slots_[tensor.layer][tensor.parameter] = {static_cast<int>(chunk), tensor.offset, tensor.rows, tensor.cols};
      tensor_names_.push_back(layers[tensor.layer].parameters[tensor.parameter].name);
    }
  }
  const int tied = layers.back().tied_parameter;
  if (tied >= 0 && slots_.back()[tied].chunk < 0) slots_.back()[tied] = slots_.front()[0];
}

MicroBatchStorage Executor::batch_storage(int split, int micro_batch) const {
  const std::vector<TokenSplit> splits = token_splits(input_.plan);
  std::byte* place = booking_data(set_.programs.front(), set_.batch_booking);
  for (int before = 0; before < split; ++before)
    place += input_.plan.accumulation * micro_batch_bytes(batch_capacity(input_, splits[static_cast<size_t>(before)]));
  const BatchCapacity capacity = batch_capacity(input_, splits[static_cast<size_t>(split)]);
  return {place + micro_batch * micro_batch_bytes(capacity), capacity};
}

std::vector<MicroBatchStorage> Executor::batch_storages(int64_t micro_batches) const {
  std::vector<MicroBatchStorage> storages;
  for (int split = 0; split < static_cast<int>(token_splits(input_.plan).size()); ++split)
    for (int index = 0; index < micro_batches; ++index) storages.push_back(batch_storage(split, index));
  return storages;
}

MicroBatchStorage Executor::decode_storage() const {
  return {booking_data(set_.programs.front(), set_.batch_booking), {input_.decode_tokens, 1}};
}

void Executor::run(const Program& program, const BatchSheet& sheet, const CopyOut& copy_out) {
  const auto execute = [&](const Instruction& instruction) { run_timed(program, instruction, sheet, copy_out); };
  if (input_.plan.overlap && queues_.has_several(program)) return queues_.run(program, execute);
  for (const Instruction& instruction : program.instructions) execute(instruction);
}

void Executor::run_timed(const Program& program, const Instruction& instruction, const BatchSheet& sheet,
                         const CopyOut& copy_out) {
  if (instruction.if_finite && !scalars_->finite) return;
  const double start = times_ == nullptr ? 0.0 : now_us();
  run_instruction(program, instruction, sheet, copy_out);
  if (times_ == nullptr) return;
  const std::lock_guard lock(times_mutex_);
  times_->push_back({&instruction, start - origin_us_, now_us() - start});
}

void Executor::run_instruction(const Program& program, const Instruction& instruction, const BatchSheet& sheet,
                               const CopyOut& copy_out) {
  switch (instruction.op) {
    case Op::kRun: return run_layer(program, instruction, sheet);
    case Op::kScalar: return run_scalar(program, instruction);
    case Op::kUpdate: return run_update(program, instruction);
    case Op::kCopy: {
      if (instruction.group >= 0) return communicate(program, instruction, sheet);
      const CopySource from = copy_source(program, set_, instruction);
      const Booking& to = program.bookings[instruction.uses[1].booking];
      STRATA_CHECK(copy_out != nullptr && 4 * from.elements == to.bytes, "copy of {} elements to {}", from.elements,
                   to.name);
      return read_as_f32(arena_.data() + from.offset, from.dtype, from.elements,
                         [&](int64_t first, std::span<const float> values) {
                           copy_out(to.offset + 4 * first, std::as_bytes(values));
                         });
    }
    case Op::kCollective:
    case Op::kSend:
    case Op::kRecv: return communicate(program, instruction, sheet);
  }
}

// What goes wrong between ranks names the instruction: a call that another rank does not join waits there.
void Executor::communicate(const Program& program, const Instruction& instruction, const BatchSheet& sheet) {
  try {
    communication_.run(program, instruction, sheet);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{} program, rank {}, {}: {}", program.name, program.rank,
                                          instruction_name(instruction, layers_), error.what()));
  }
}

TensorView Executor::tensor_view(const Program& program, const Use& use, const Instruction& run,
                                 const MicroBatch& batch) const {
  const TensorDecl& decl = layers_[run.layer].tensors[use.index];
  const LayerPlace& place = place_.layers[run.layer];
  const Booking& booking = program.bookings[use.booking];
  const DType dtype = decl.f32 ? DType::kF32 : storage();
  const int64_t width = decl.by_heads                     ? decl.width / (place.tp * place.cp)
                        : decl.layout == Layout::kSharded ? share_of(decl.width, place.tp, place.tensor).count
                                                          : decl.width;
  const bool whole = booking.kind == BookingKind::kCache;  // its rows are its capacity
  const int64_t tokens = decl.of_slice ? batch.part_of(run.slice).num_tokens() : batch.num_tokens();
  int64_t rows = whole ? booking.bytes / (width * dtype_bytes(dtype)) : decl.single_row ? 1 : tokens;
  if (decl.by_tile) rows = share_of(tokens, run.num_tiles, run.tile).count;
  if (decl.layout == Layout::kStacked) rows *= place.tp;
  return {arena_.data() + booking.offset, dtype, rows, width};
}

void Executor::run_layer(const Program& program, const Instruction& instruction, const BatchSheet& sheet) {
  const LayerDecl& layer = layers_[instruction.layer];
  const LayerPlace& place = place_.layers[instruction.layer];
  const bool by_heads = layer.kind == LayerKind::kAttention && instruction.segment == attention_segment::kHeads;
  const std::vector<int>& splits = by_heads ? split_of_core_ : split_of_layer_;
  const MicroBatch& batch = sheet.micro_batch(splits[instruction.layer], instruction.micro_batch);
  const Use* workspace = find_use(instruction, Role::kWorkspace);
  std::span<std::byte> scratch;
  if (workspace != nullptr)
    scratch = {booking_data(program, workspace->booking),
               static_cast<size_t>(program.bookings[workspace->booking].bytes)};
  const int64_t tokens = batch.num_tokens();
  SegmentCall call{by_heads ? core_parts_[instruction.layer] : parts_[instruction.layer],
                   by_heads ? place.tensor * place.cp + place.context : place.tensor,
                   by_heads ? place.tp * place.cp : place.tp,
                   layer,
                   instruction.layer,
                   instruction.segment,
                   instruction.direction,
                   instruction.recomputed,
                   share_of(tokens, instruction.num_tiles, instruction.tile),
                   head_tile_tokens(input_.plan, input_.model, program.capacity_tokens.back()),
                   batch,
                   *scalars_,
                   {team_, scratch}};
  call.context_rank = place.context;
  call.slice = instruction.slice;
  for (const Use& use : instruction.uses) {
    if (use.role == Role::kTensor) call.tensors[use.index] = tensor_view(program, use, instruction, batch);
    if (use.role != Role::kParameter && use.role != Role::kGradient) continue;
    const Slot& slot = slots_[instruction.layer][use.index];
    const DType dtype = use.role == Role::kParameter ? storage() : DType::kF32;
    const TensorView view(booking_data(program, use.booking) + slot.offset * dtype_bytes(dtype), dtype, slot.rows,
                          slot.cols);
    if (use.role == Role::kParameter) {
      call.parameters[use.index] = view;
    } else {
      call.gradients[use.index] = view;
      call.gradient_write[use.index] = use.access == Access::kWrite ? kernels::Write::kSet : kernels::Write::kAdd;
    }
  }
  run_segment(call);
}

void Executor::run_scalar(const Program& program, const Instruction& instruction) {
  switch (instruction.scalar) {
    case ScalarOp::kReset:
      scalars_->loss_sum = scalars_->norm_squared = 0;
      scalars_->gradient_scale = 1;
      scalars_->first_bad_tensor = -1;
      scalars_->finite = true;
      return;
    case ScalarOp::kChunkNorm: {
      const auto* gradient = reinterpret_cast<const float*>(booking_data(program, instruction.uses[0].booking));
      return measure_norms({team_, {}}, owned_ranges_[instruction.chunk], gradient, norms_, *scalars_);
    }
    case ScalarOp::kFinishNorm: return finish_norm(*scalars_);
  }
}

void Executor::run_update(const Program& program, const Instruction& instruction) {
  UpdateBuffers buffers;
  for (const Use& use : instruction.uses) {
    if (use.role == Role::kGradient)
      buffers.gradient = reinterpret_cast<const float*>(booking_data(program, use.booking));
    if (use.role == Role::kParameter) buffers.parameters = booking_data(program, use.booking);
    if (use.role == Role::kState)
      buffers.states.push_back(reinterpret_cast<float*>(booking_data(program, use.booking)));
  }
  update_parameters({team_, {}}, input_.optimizer, input_.precision, *scalars_, owned_ranges_[instruction.chunk],
                    buffers);
}

TensorView Executor::parameter(int layer, int index) const {
  const Slot& slot = slots_[layer][index];
  std::byte* base = booking_data(set_.programs.front(), set_.parameter_booking[slot.chunk]);
  return {base + slot.offset * dtype_bytes(storage()), storage(), slot.rows, slot.cols};
}

TensorView Executor::master(int layer, int index) const {
  const Slot& slot = slots_[layer][index];
  const std::vector<int>& states = set_.state_booking[slot.chunk];
  if (input_.precision == Precision::kF32 || states.empty()) return parameter(layer, index);
  return {booking_data(set_.programs.front(), states[0]) + slot.offset * 4, DType::kF32, slot.rows, slot.cols};
}

TensorView Executor::gradient(const Program& step, int layer, int index) const {
  const Slot& slot = slots_[layer][index];
  for (const Instruction& instruction : step.instructions)
    if (instruction.op == Op::kUpdate && instruction.chunk == slot.chunk)
      return {booking_data(step, instruction.uses[0].booking) + slot.offset * 4, DType::kF32, slot.rows, slot.cols};
  return {};
}

const std::string& Executor::tensor_name(int index) const { return tensor_names_[index]; }

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/exec/communication.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "strata/base/error.h"
#include "strata/spec/step_scalars.h"

namespace strata {
namespace {

constexpr int64_t kPieceElements = 64 << 10;

bool communicates(const Instruction& instruction) {
  return instruction.op == Op::kCollective || instruction.op == Op::kSend || instruction.op == Op::kRecv;
}

int64_t members_of(const Program& program, const Instruction& instruction) {
  return static_cast<int64_t>(program.groups[instruction.group].ranks.size());
}

// Of a buffer with rows of the whole micro-batch, of a tile of it, or independent of it.
int64_t live_elements(const Program& program, const Instruction& instruction, int64_t tokens) {
  if (instruction.micro_batch < 0) return instruction.elements;
  const int64_t capacity = program.capacity_tokens[instruction.layer];
  const int64_t rows = (capacity + instruction.num_tiles - 1) / instruction.num_tiles;
  return instruction.elements / rows * share_of(tokens, instruction.num_tiles, instruction.tile).count;
}

bool has_tied_chunk(const ProgramSet& set) {
  return std::any_of(set.chunks.begin(), set.chunks.end(),
                     [](const Chunk& chunk) { return chunk.tied_peer_stage >= 0; });
}

}  // namespace

Communication::Communication(const CompileInput& input, const std::vector<LayerDecl>& layers, const ProgramSet& set,
                             std::span<std::byte> arena, Comm* comm)
    : input_(input), layers_(layers), set_(set), arena_(arena), comm_(comm) {
  const bool needed = std::any_of(set.programs.begin(), set.programs.end(), [](const Program& program) {
    return std::any_of(program.instructions.begin(), program.instructions.end(), communicates);
  });
  if (needed && (comm == nullptr || comm->size() != input.plan.num_ranks))
    throw_bad_input("the plan has {} ranks and {} run: start as many, or use a plan with num_ranks {}",
                    input.plan.num_ranks, comm == nullptr ? 1 : comm->size(), comm == nullptr ? 1 : comm->size());
  for (const LayerPlan& layer : input.plan.layers)
    split_of_layer_.push_back(token_split_index(input.plan, token_split(layer)));
  if (comm != nullptr) make_groups();
  if (has_tied_chunk(set)) received_.resize(kPieceElements);
}

// In the order of their ranks: members of several groups make these in the same order.
void Communication::make_groups() {
  std::map<std::pair<std::vector<int>, Queue>, std::vector<GroupKey>> wanted;
  for (const Program& program : set_.programs)
    for (const Instruction& instruction : program.instructions)
      if (instruction.op == Op::kCollective)
        wanted[{program.groups[instruction.group].ranks, instruction.queue}].push_back(
            {&program, instruction.group, instruction.queue});
  for (const auto& [members, keys] : wanted) {
    const auto& [ranks, queue] = members;
    const std::string& name = std::get<0>(keys[0])->groups[std::get<1>(keys[0])].name;
    const Group group = comm_->group(name, ranks, static_cast<int>(queue));
    for (const GroupKey& key : keys) groups_[key] = group;
  }
}

const MicroBatch* Communication::batch_of(const Instruction& instruction, const BatchSheet& sheet) const {
  if (instruction.chunk >= 0 || instruction.micro_batch < 0) return nullptr;
  return &sheet.micro_batch(split_of_layer_[static_cast<size_t>(instruction.layer)], instruction.micro_batch);
}

void Communication::run(const Program& program, const Instruction& instruction, const BatchSheet& sheet) {
  const MicroBatch* const batch = batch_of(instruction, sheet);
  const int64_t tokens = batch == nullptr ? 0 : batch->num_tokens();
  if (instruction.op == Op::kCollective) {
    const Group& group = groups_.at({&program, instruction.group, instruction.queue});
    if (program.bookings[instruction.uses[0].booking].kind == BookingKind::kScalars)
      return sum_scalars(program, instruction, group);
    if (instruction.collective == CollectiveKind::kRotate) return rotate(program, instruction, *batch, group);
    if (instruction.collective == CollectiveKind::kReshard)
      return exchange_rows(*comm_, group, row_exchange(program, instruction, sheet));
    if (instruction.chunk < 0) return exchange_activation(program, instruction, group, tokens);
    if (instruction.collective == CollectiveKind::kAllGather)
      return gather(program, instruction, group, storage(), instruction.elements);
    return reduce_into_shard(program, instruction, group);
  }
  if (instruction.op == Op::kCopy && instruction.reader >= 0) {
    const std::vector<int>& ranks = program.groups[instruction.group].ranks;
    const auto member = std::find(ranks.begin(), ranks.end(), program.rank) - ranks.begin();
    return copy_rows(row_exchange(program, instruction, sheet), static_cast<int>(member));
  }
  if (instruction.op == Op::kCopy) return copy_part(program, instruction, tokens);
  const bool tied = instruction.chunk >= 0;
  const Message message = tied ? tied_message(program, instruction) : activation(program, instruction, tokens);
  const int lane = static_cast<int>(instruction.queue);
  const size_t bytes = static_cast<size_t>(message.elements * dtype_bytes(message.dtype));
  if (tied && instruction.queue == Queue::kBackwardPipe)
    return instruction.op == Op::kSend ? send_in_pieces(instruction, message) : receive_and_add(instruction, message);
  if (instruction.op == Op::kSend) return comm_->send(instruction.peer, lane, {message.data, bytes});
  comm_->receive(instruction.peer, lane, {message.data, bytes});
}

PartRange Communication::own_part(const Program& program, const Instruction& instruction, int64_t elements) const {
  const std::vector<int>& ranks = program.groups[instruction.group].ranks;
  const auto member = std::find(ranks.begin(), ranks.end(), program.rank) - ranks.begin();
  return part_range(elements, static_cast<int64_t>(ranks.size()), member);
}

void Communication::gather(const Program& program, const Instruction& instruction, const Group& group, DType dtype,
                           int64_t elements) {
  std::byte* const whole = data_of(program, instruction.uses.back().booking);
  const int64_t bytes = dtype_bytes(dtype);
  const PartRange own = part_range(elements, group.size, group.member);
  if (instruction.uses.size() > 1)
    std::memcpy(whole + own.begin * bytes, data_of(program, instruction.uses[0].booking),
                static_cast<size_t>(own.count * bytes));
  comm_->all_gather(group, dtype, whole, elements);
}

// All of a partial sum, or the own part of it, which the second booking gets; or the whole of the parts.
void Communication::exchange_activation(const Program& program, const Instruction& instruction, const Group& group,
                                        int64_t tokens) {
  const bool gathers = instruction.collective == CollectiveKind::kAllGather;
  const Booking& whole = program.bookings[(gathers ? instruction.uses.back() : instruction.uses.front()).booking];
  const DType dtype = whole.bytes == instruction.elements * 4 ? DType::kF32 : DType::kBF16;
  const int64_t elements = live_elements(program, instruction, tokens);
  std::byte* const data = arena_.data() + whole.offset;
  if (instruction.collective == CollectiveKind::kAllReduce) return comm_->all_reduce(group, dtype, data, elements);
  if (gathers) return gather(program, instruction, group, dtype, elements);
  comm_->reduce_scatter(group, dtype, data, elements);
  const PartRange own = part_range(elements, group.size, group.member);
  std::memcpy(data_of(program, instruction.uses[1].booking), data + own.begin * dtype_bytes(dtype),
              static_cast<size_t>(own.count * dtype_bytes(dtype)));
}

void Communication::copy_part(const Program& program, const Instruction& instruction, int64_t tokens) {
  const Booking& whole = program.bookings[instruction.uses[0].booking];
  const int64_t element_bytes = whole.bytes / instruction.elements;
  const PartRange own = own_part(program, instruction, live_elements(program, instruction, tokens));
  std::memcpy(data_of(program, instruction.uses[1].booking), arena_.data() + whole.offset + own.begin * element_bytes,
              static_cast<size_t>(own.count * element_bytes));
}

// Members with an even place send first: so a ring of any size has one that receives first, and nobody waits for ever.
void Communication::rotate(const Program& program, const Instruction& instruction, const MicroBatch& batch,
                           const Group& group) {
  const std::vector<int>& ranks = program.groups[instruction.group].ranks;
  const auto member = static_cast<size_t>(group.member), size = static_cast<size_t>(group.size);
  const int next = ranks[(member + 1) % size], previous = ranks[(member + size - 1) % size];
  const int64_t arriving = (instruction.slice + group.size - 1) % group.size;
  const auto bytes_of = [&](const Use& use, int64_t slice) -> std::span<std::byte> {
    const int64_t row_bytes = program.bookings[use.booking].bytes / program.capacity_tokens[instruction.layer];
    return {data_of(program, use.booking), static_cast<size_t>(row_bytes * batch.part_of(slice).num_tokens())};
  };
  const int lane = static_cast<int>(instruction.queue);
  if (member % 2 == 0) comm_->send(next, lane, bytes_of(instruction.uses[0], instruction.slice));
  comm_->receive(previous, lane, bytes_of(instruction.uses[1], arriving));
  if (member % 2 == 1) comm_->send(next, lane, bytes_of(instruction.uses[0], instruction.slice));
}

// What a rank has of a tensor.
Holding Communication::holding(int rank, int layer, int tensor) const {
  const LayerPlan& plan = input_.plan.layers[layer];
  const int64_t stage_ranks = input_.plan.num_ranks / num_stages(input_.plan);
  const TokenShare share = token_share(token_split(plan), stage_ranks, rank % stage_ranks);
  if (!layers_[layer].tensors[tensor].by_heads) return {share};
  return {{core_split(plan), share.data, 0}, share.context, plan.cp};
}

RowExchange Communication::row_exchange(const Program& program, const Instruction& instruction,
                                        const BatchSheet& sheet) const {
  const Use &from = instruction.uses[0], &to = instruction.uses[1];
  const LayerDecl& layer = layers_[instruction.layer];
  const DType dtype = layer.tensors[from.index].f32 ? DType::kF32 : storage();
  RowExchange exchange;
  for (const int rank : program.groups[instruction.group].ranks) {
    exchange.from.push_back(holding(rank, instruction.layer, from.index));
    exchange.to.push_back(holding(rank, instruction.reader, to.index));
  }
  exchange.lengths = sheet.lengths_of(instruction.micro_batch);
  exchange.samples = sheet.stage_samples;
  const bool within = instruction.layer == instruction.reader;  // what its tensor-parallel ranks hold stays apart
  for (const int64_t width : column_blocks(input_.model, layer, from.index))
    exchange.block_bytes.push_back(width / (within ? input_.plan.layers[instruction.layer].tp : 1) *
                                   dtype_bytes(dtype));
  exchange.source = data_of(program, from.booking);
  exchange.target = data_of(program, to.booking);
  if (instruction.uses.size() > 2) {
    const int scratch = instruction.uses[2].booking;
    exchange.scratch = {data_of(program, scratch), static_cast<size_t>(program.bookings[scratch].bytes)};
  }
  return exchange;
}

void Communication::sum_scalars(const Program& program, const Instruction& instruction, const Group& group) {
  auto* scalars = reinterpret_cast<StepScalars*>(data_of(program, instruction.uses[0].booking));
  double sums[] = {scalars->loss_sum, scalars->norm_squared};
  comm_->all_reduce(group, DType::kF64, reinterpret_cast<std::byte*>(sums), 2);
  scalars->loss_sum = sums[0];
  scalars->norm_squared = sums[1];
}

// A gradient chunk is summed in place: all of it (ZeRO 0), the own part (ZeRO 1), or the own part, which is then set in
// or added to the shard of the second use (ZeRO 2 and 3).
void Communication::reduce_into_shard(const Program& program, const Instruction& instruction, const Group& group) {
  std::byte* const full = data_of(program, instruction.uses[0].booking);
  if (instruction.collective == CollectiveKind::kAllReduce)
    return comm_->all_reduce(group, DType::kF32, full, instruction.elements);
  comm_->reduce_scatter(group, DType::kF32, full, instruction.elements);
  if (instruction.uses.size() < 2) return;
  const PartRange own = part_range(instruction.elements, group.size, group.member);
  const float* const from = reinterpret_cast<const float*>(full) + own.begin;
  auto* const to = reinterpret_cast<float*>(data_of(program, instruction.uses[1].booking));
  if (instruction.uses[1].access == Access::kWrite)
    std::copy_n(from, own.count, to);
  else
    std::transform(from, from + own.count, to, to, std::plus<>());
}

Communication::Message Communication::activation(const Program& program, const Instruction& instruction,
                                                 int64_t tokens) const {
  const Booking& booking = program.bookings[instruction.uses[0].booking];
  const int64_t elements = live_elements(program, instruction, tokens);
  const int64_t capacity = instruction.group < 0
                               ? instruction.elements
                               : part_range(instruction.elements, members_of(program, instruction), 0).count;
  return {arena_.data() + booking.offset, booking.bytes == capacity * 4 ? DType::kF32 : DType::kBF16,
          instruction.group < 0 ? elements : own_part(program, instruction, elements).count};
}

// The part of a tied chunk that this rank's optimizer updates: of the gradient, or of the new values.
Communication::Message Communication::tied_message(const Program& program, const Instruction& instruction) const {
  const Chunk& chunk = set_.chunks[instruction.chunk];
  const bool gradient = instruction.queue == Queue::kBackwardPipe;
  const DType dtype = gradient ? DType::kF32 : storage();
  const bool is_shard = chunk.num_shards > 1 && chunk.zero >= (gradient ? 2 : 3);
  const int64_t begin = is_shard ? 0 : chunk.owned_begin();
  return {data_of(program, instruction.uses[0].booking) + begin * dtype_bytes(dtype), dtype, chunk.owned_elements()};
}

void Communication::send_in_pieces(const Instruction& instruction, const Message& message) {
  for (int64_t done = 0; done < message.elements; done += kPieceElements) {
    const int64_t count = std::min(kPieceElements, message.elements - done);
    comm_->send(instruction.peer, static_cast<int>(instruction.queue),
                {message.data + 4 * done, static_cast<size_t>(4 * count)});
  }
}

void Communication::receive_and_add(const Instruction& instruction, const Message& message) {
  auto* const sum = reinterpret_cast<float*>(message.data);
  for (int64_t done = 0; done < message.elements; done += kPieceElements) {
    const int64_t count = std::min(kPieceElements, message.elements - done);
    comm_->receive(instruction.peer, static_cast<int>(instruction.queue),
                   std::as_writable_bytes(std::span(received_.data(), static_cast<size_t>(count))));
    std::transform(sum + done, sum + done + count, received_.begin(), sum + done, std::plus<>());
  }
}

}  // namespace strata

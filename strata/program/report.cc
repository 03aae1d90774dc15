// SPDX-License-Identifier: Apache-2.0
#include "strata/program/report.h"

#include "strata/base/checksum.h"
#include "strata/base/error.h"
#include "strata/base/units.h"
#include "strata/program/memory.h"

namespace strata {
namespace {

std::string_view tier_name(Tier tier) {
  constexpr std::array<std::string_view, kNumTiers> names = {"device", "disk"};
  return names[static_cast<size_t>(tier)];
}

std::string ledger_line(std::string_view what, int64_t bytes) {
  return fmt::format("  {:<12} {:>15} {:>10}\n", what, bytes, format_bytes(bytes));
}

std::string describe_tier(const Program& program, Tier tier) {
  const Ledger book = ledger(program, tier);
  if (book.arena_bytes == 0) return "";
  std::string text =
      fmt::format("{} memory in bytes, fullest at instruction {}\n", tier_name(tier), book.peak_instruction);
  for (int kind = 0; kind < kNumBookingKinds; ++kind)
    if (book.bytes[kind] > 0) text += ledger_line(booking_kind_name(static_cast<BookingKind>(kind)), book.bytes[kind]);
  return text + ledger_line("alive", book.live_bytes) + ledger_line("arena", book.arena_bytes);
}

// Adds numbers and names one by one; names carry their length, so that neighbours cannot be confused.
class Digest {
 public:
  template <typename... Values>
  void add(const Values&... values) {
    (add_one(values), ...);
  }
  std::string hex() const { return checksum_hex(checksum_.digest()); }

 private:
  void add_one(std::string_view text) { checksum_.update(fmt::format("{}:{} ", text.size(), text)); }
  template <typename Number>
  requires std::is_integral_v<Number> || std::is_enum_v<Number>
  void add_one(Number value) { checksum_.update(fmt::format("{} ", static_cast<int64_t>(value))); }
  template <typename List>
  requires(!std::is_convertible_v<List, std::string_view>) && requires(const List& list) { list.begin(); }
  void add_one(const List& list) {
    add_one(list.size());
    for (const auto& element : list) add_one(element);
  }
  void add_one(const Use& use) { add(use.booking, use.access, use.role, use.index); }
  void add_one(const Wait& wait) { add(wait.queue, wait.count); }
  void add_one(const RankGroup& group) { add(group.name, group.ranks); }
  void add_one(const Booking& booking) {
    add(booking.name, booking.bytes, booking.kind, booking.tier, booking.persistent, booking.offset);
  }
  void add_one(const ChunkTensor& tensor) {
    add(tensor.layer, tensor.parameter, tensor.offset, tensor.rows, tensor.cols);
  }
  void add_one(const Chunk& chunk) {
    add(chunk.name, chunk.layer, chunk.tensors, chunk.elements, chunk.num_shards, chunk.shard, chunk.zero,
        chunk.over_tp, chunk.trainable, chunk.tied_peer_stage, chunk.tied_alias);
  }
  void add_one(const Instruction& instruction) {
    add(instruction.op, instruction.queue, instruction.direction, instruction.collective, instruction.scalar,
        instruction.if_finite, instruction.layer, instruction.reader, instruction.segment, instruction.recomputed,
        instruction.micro_batch, instruction.slice, instruction.tile, instruction.num_tiles, instruction.chunk,
        instruction.group, instruction.peer, instruction.elements, instruction.uses, instruction.waits);
  }
  void add_one(const Program& program) {
    add(program.name, program.rank, program.bookings, program.groups, program.arena_bytes, program.instructions);
  }

  Checksum checksum_;
};

}  // namespace

std::string describe_ledger(const Program& program) {
  std::string text;
  for (int tier = 0; tier < kNumTiers; ++tier) text += describe_tier(program, static_cast<Tier>(tier));
  return text;
}

std::string describe_program(const Program& program, const std::vector<LayerDecl>& layers) {
  std::string text = fmt::format("program {} of rank {}: {} instructions, {} bookings\n", program.name, program.rank,
                                 program.instructions.size(), program.bookings.size());
  for (const RankGroup& group : program.groups)
    text += fmt::format("group {}: ranks {}\n", group.name, fmt::join(group.ranks, " "));
  for (size_t index = 0; index < program.instructions.size(); ++index)
    text += fmt::format("{:>5}  {}\n", index, describe(program.instructions[index], program, layers));
  return text + describe_ledger(program);
}

std::string program_digest(const ProgramSet& set) {
  Digest digest;
  digest.add(set.rank, set.chunks, set.parameter_booking, set.state_booking, set.batch_booking, set.scalars_booking,
             set.norms_booking, set.cache_booking, set.arena_bytes, set.programs);
  return digest.hex();
}

}  // namespace strata

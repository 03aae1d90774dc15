// SPDX-License-Identifier: Apache-2.0
// Groups whose members share a machine. Each member has a staging area in a window that all of them map: two blocks
// that it alone writes, and a counter of the blocks it has filled. A call is a sequence of steps, the same on all
// members: a member fills its next block, raises its counter, waits until everybody's counter has come as far, and
// reads what it needs from everybody's block. Whoever fills block s + 2, which is block s again, has seen that all have
// filled s + 1; they did so after reading s. So one wait per step is enough.
// Large parts are not staged where the members can read each other's memory: a step tells the addresses, everybody
// reads the others' values, and nobody returns, or overwrites what others read, before one more step. All have read
// what was in the blocks by the first step: there a member's own blocks hold what it has read to be added.
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "strata/comm/comm.h"
#include "strata/comm/mpi/mpi_group.h"
#include "strata/comm/mpi/peer_memory.h"
#include "strata/comm/mpi/stream_copy.h"
#include "strata/comm/mpi/window.h"
#include "strata/comm/sums.h"

namespace strata {
namespace {

constexpr int64_t kSmallReduce = 8 << 10;  // up to here everybody adds everything: one step instead of two
// Of a part, from here on: below, the calls into the kernel cost more than the second pass over memory.
constexpr int64_t kSmallestDirect = 128 << 10;

class WindowEnd : public GroupEnd {
 public:
  WindowEnd(std::unique_ptr<MpiGroup> group, bool reads_peers)
      : group_(std::move(group)),
        size_(group_->members.size()),
        member_(group_->members.member),
        window_(*group_),
        spins_(group_->process->ranks_have_cores()),
        piece_bytes_(kBlockBytes / size_ / kWindowAlignment * kWindowAlignment),
        reads_peers_(reads_peers && window_.members_read_each_other()),
        parts_(static_cast<size_t>(size_)),
        values_(static_cast<size_t>(size_)) {
    STRATA_CHECK(piece_bytes_ > 0, "{} members share a block of {} bytes", size_, kBlockBytes);
  }

  void all_reduce(DType dtype, std::byte* values, int64_t elements) override;
  void reduce_scatter(DType dtype, std::byte* values, int64_t elements) override;
  void all_gather(DType dtype, std::byte* values, int64_t elements) override;
  void all_to_all(std::span<const std::span<const std::byte>> send,
                  std::span<const std::span<std::byte>> receive) override;
  void broadcast(int from_member, std::span<std::byte> bytes) override;
  void barrier() override { step({}); }

 private:
  // The parts of a buffer in bytes, cut into pieces; piece i of a short part may be empty.
  struct Pieces {
    int64_t part_bytes(int part) const { return part_range(elements, parts, part).count * width; }
    int64_t begin(int part, int64_t piece) const {
      return part_range(elements, parts, part).begin * width + std::min(piece * bytes, part_bytes(part));
    }
    int64_t size(int part, int64_t piece) const {
      return std::clamp<int64_t>(part_bytes(part) - piece * bytes, 0, bytes);
    }
    int64_t count() const { return (part_bytes(0) + bytes - 1) / bytes; }

    int64_t elements, width;
    int parts;
    int64_t bytes;  // of a whole piece
  };

  template <typename Body>
  void for_others(Body&& body) const {
    for (int other = 0; other < size_; ++other)
      if (other != member_) body(other);
  }

  // The block to fill next, and those that all have filled after step().
  std::byte* own_block() const { return window_.block(member_, steps_); }
  const std::byte* filled_block(int member) const { return window_.block(member, steps_ - 1); }
  // Where a block holds what goes to member `to`; its own place is for what goes to everybody.
  int64_t place(int to) const { return to * piece_bytes_; }

  void step(const Call& call);
  [[noreturn]] void throw_missing(const Call& call);
  int64_t agree_on_pieces(const Call& call, std::span<const std::span<const std::byte>> send,
                          std::span<const std::span<std::byte>> receive);
  // Directly from the others' memory.
  bool is_direct(const Call& call) const {
    return reads_peers_ && call.elements * dtype_bytes(call.dtype) / size_ >= kSmallestDirect;
  }
  void exchange_addresses(const Call& call, const std::byte* values);
  void read_values(const Call& call, int other, int64_t begin, std::byte* to, int64_t num_bytes);
  void sum_own_part(const Call& call, std::byte* values);
  void collect_parts(const Call& call, std::byte* values);
  void reduce_whole(const Call& call, std::byte* values);
  void give_pieces(const std::byte* values, const Pieces& pieces, int64_t piece);
  void add_own_piece(const Call& call, std::byte* values, const Pieces& pieces, int64_t piece);

  std::unique_ptr<MpiGroup> group_;
  int size_;
  int member_;
  Window window_;
  bool spins_;
  int64_t piece_bytes_;
  bool reads_peers_;
  int64_t steps_ = 0;
  std::vector<const std::byte*> parts_;
  std::vector<const std::byte*> values_;  // by member: where a direct call's are, in its own memory
};

void WindowEnd::step(const Call& call) {
  WindowHeader& own = window_.header(member_);
  own.calls[steps_ % 2] = call;
  own.filled.raise();
  for_others([&](int other) {
    WindowHeader& header = window_.header(other);
    // Others are where this member is, or one block ahead.
    const bool filled = header.filled.wait_while(static_cast<uint32_t>(steps_), group_->timeout_seconds, spins_);
    if (!filled) throw_missing(call);
    const Call& others = header.calls[steps_ % 2];
    const std::vector<int>& ranks = group_->members.ranks;
    STRATA_CHECK(others == call, "in group '{}' rank {} calls {}, rank {} calls {}", group_->members.name,
                 ranks[static_cast<size_t>(member_)], describe(call), ranks[static_cast<size_t>(other)],
                 describe(others));
  });
  ++steps_;
}

void WindowEnd::throw_missing(const Call& call) {
  group_->process->give_up();
  std::vector<int> missing;
  for_others([&](int other) {
    if (window_.header(other).filled.value() == static_cast<uint32_t>(steps_))
      missing.push_back(group_->members.ranks[static_cast<size_t>(other)]);
  });
  throw_failed_run("{}: waited {} s for ranks {} of {}", group_->what(call), group_->timeout_seconds,
                   fmt::join(missing, ", "), fmt::join(group_->members.ranks, ", "));
}

void WindowEnd::exchange_addresses(const Call& call, const std::byte* values) {
  const int64_t slot = steps_ % 2;
  window_.header(member_).values[slot] = values;
  step(call);
  for_others([&](int other) { values_[static_cast<size_t>(other)] = window_.header(other).values[slot]; });
}

// Bytes from `begin` on of another member's values.
void WindowEnd::read_values(const Call& call, int other, int64_t begin, std::byte* to, int64_t num_bytes) {
  if (read_peer(window_.header(other).process, values_[static_cast<size_t>(other)] + begin, to, num_bytes)) return;
  const std::string reason = std::generic_category().message(errno);
  group_->process->give_up();
  throw_failed_run("{}: cannot read {} bytes of rank {}: {}", group_->what(call), num_bytes,
                   group_->members.ranks[static_cast<size_t>(other)], reason);
}

void WindowEnd::sum_own_part(const Call& call, std::byte* values) {
  const int64_t width = dtype_bytes(call.dtype);
  const PartRange part = part_range(call.elements, size_, member_);
  const int64_t end = (part.begin + part.count) * width;
  const int64_t piece = 2 * kBlockBytes / (size_ - 1) / kWindowAlignment * kWindowAlignment;
  for (int64_t begin = part.begin * width; begin < end; begin += piece) {
    const int64_t count = std::min(piece, end - begin);
    std::byte* buffer = window_.block(member_, 0);  // and the next one, which follows it
    parts_[static_cast<size_t>(member_)] = values + begin;
    for_others([&](int other) {
      read_values(call, other, begin, buffer, count);
      parts_[static_cast<size_t>(other)] = std::exchange(buffer, buffer + piece);
    });
    sum_parts(call.dtype, parts_, values + begin, count / width);
  }
}

void WindowEnd::collect_parts(const Call& call, std::byte* values) {
  const int64_t width = dtype_bytes(call.dtype);
  for_others([&](int other) {
    const PartRange part = part_range(call.elements, size_, other);
    read_values(call, other, part.begin * width, values + part.begin * width, part.count * width);
  });
}

void WindowEnd::reduce_whole(const Call& call, std::byte* values) {
  stream_copy(values, own_block(), call.elements * dtype_bytes(call.dtype));
  step(call);
  for (int other = 0; other < size_; ++other)
    parts_[static_cast<size_t>(other)] = other == member_ ? values : filled_block(other);
  sum_parts(call.dtype, parts_, values, call.elements);
}

void WindowEnd::give_pieces(const std::byte* values, const Pieces& pieces, int64_t piece) {
  for_others([&](int other) {
    stream_copy(values + pieces.begin(other, piece), own_block() + place(other), pieces.size(other, piece));
  });
}

void WindowEnd::add_own_piece(const Call& call, std::byte* values, const Pieces& pieces, int64_t piece) {
  std::byte* const own = values + pieces.begin(member_, piece);
  for (int other = 0; other < size_; ++other)
    parts_[static_cast<size_t>(other)] = other == member_ ? own : filled_block(other) + place(member_);
  sum_parts(call.dtype, parts_, own, pieces.size(member_, piece) / pieces.width);
}

// The sum of a piece is given to everybody in the step after it was made, beside the next piece's values.
void WindowEnd::all_reduce(DType dtype, std::byte* values, int64_t elements) {
  const Call call = {CallKind::kAllReduce, dtype, 0, elements};
  if (elements * dtype_bytes(dtype) <= kSmallReduce) return reduce_whole(call, values);
  if (is_direct(call)) {
    exchange_addresses(call, values);
    sum_own_part(call, values);
    step(call);
    collect_parts(call, values);
    return step(call);
  }
  const Pieces pieces = {elements, dtype_bytes(dtype), size_, piece_bytes_};
  for (int64_t piece = 0; piece <= pieces.count(); ++piece) {
    if (piece < pieces.count()) give_pieces(values, pieces, piece);
    step(call);
    if (piece < pieces.count()) {
      add_own_piece(call, values, pieces, piece);
      stream_copy(values + pieces.begin(member_, piece), own_block() + place(member_), pieces.size(member_, piece));
    }
    if (piece > 0)
      for_others([&](int other) {
        stream_copy(filled_block(other) + place(other), values + pieces.begin(other, piece - 1),
                    pieces.size(other, piece - 1));
      });
  }
}

void WindowEnd::reduce_scatter(DType dtype, std::byte* values, int64_t elements) {
  const Call call = {CallKind::kReduceScatter, dtype, 0, elements};
  if (is_direct(call)) {
    exchange_addresses(call, values);
    sum_own_part(call, values);
    return step(call);
  }
  const Pieces pieces = {elements, dtype_bytes(dtype), size_, piece_bytes_};
  for (int64_t piece = 0; piece < pieces.count(); ++piece) {
    give_pieces(values, pieces, piece);
    step(call);
    add_own_piece(call, values, pieces, piece);
  }
}

void WindowEnd::all_gather(DType dtype, std::byte* values, int64_t elements) {
  const Call call = {CallKind::kAllGather, dtype, 0, elements};
  if (is_direct(call)) {
    exchange_addresses(call, values);
    collect_parts(call, values);
    return step(call);
  }
  const Pieces pieces = {elements, dtype_bytes(dtype), size_, kBlockBytes};
  for (int64_t piece = 0; piece < pieces.count(); ++piece) {
    stream_copy(values + pieces.begin(member_, piece), own_block(), pieces.size(member_, piece));
    step(call);
    for_others([&](int other) {
      stream_copy(filled_block(other), values + pieces.begin(other, piece), pieces.size(other, piece));
    });
  }
}

// A member's own sizes do not tell it how many pieces the others have for each other: all tell theirs first.
int64_t WindowEnd::agree_on_pieces(const Call& call, std::span<const std::span<const std::byte>> send,
                                   std::span<const std::span<std::byte>> receive) {
  auto* const sizes = reinterpret_cast<int64_t*>(own_block());
  for (int other = 0; other < size_; ++other)
    sizes[other] = static_cast<int64_t>(send[static_cast<size_t>(other)].size());
  step(call);
  int64_t largest = 0;
  for (int from = 0; from < size_; ++from) {
    const auto* const theirs = reinterpret_cast<const int64_t*>(filled_block(from));
    const auto expected = static_cast<int64_t>(receive[static_cast<size_t>(from)].size());
    STRATA_CHECK(theirs[member_] == expected,
                 "all-to-all in group '{}': member {} gives {} bytes to member {}, which expects {}",
                 group_->members.name, from, theirs[member_], member_, expected);
    for (int to = 0; to < size_; ++to)
      if (to != from) largest = std::max(largest, theirs[to]);
  }
  return (largest + piece_bytes_ - 1) / piece_bytes_;
}

void WindowEnd::all_to_all(std::span<const std::span<const std::byte>> send,
                           std::span<const std::span<std::byte>> receive) {
  const Call call = {CallKind::kAllToAll, DType::kU8, 0, 0};
  std::ranges::copy(send[static_cast<size_t>(member_)], receive[static_cast<size_t>(member_)].begin());
  const int64_t pieces = agree_on_pieces(call, send, receive);
  const auto piece_of = [&](auto bytes, int64_t piece) {
    const size_t begin = std::min(bytes.size(), static_cast<size_t>(piece * piece_bytes_));
    return bytes.subspan(begin, std::min(bytes.size() - begin, static_cast<size_t>(piece_bytes_)));
  };
  for (int64_t piece = 0; piece < pieces; ++piece) {
    for_others([&](int other) {
      const auto from = piece_of(send[static_cast<size_t>(other)], piece);
      stream_copy(from.data(), own_block() + place(other), static_cast<int64_t>(from.size()));
    });
    step(call);
    for_others([&](int other) {
      const auto to = piece_of(receive[static_cast<size_t>(other)], piece);
      stream_copy(filled_block(other) + place(member_), to.data(), static_cast<int64_t>(to.size()));
    });
  }
}

void WindowEnd::broadcast(int from_member, std::span<std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const Call call = {CallKind::kBroadcast, DType::kU8, from_member, size};
  for (int64_t begin = 0; begin < size; begin += kBlockBytes) {
    const int64_t count = std::min(kBlockBytes, size - begin);
    if (member_ == from_member) stream_copy(bytes.data() + begin, own_block(), count);
    step(call);
    if (member_ != from_member) stream_copy(filled_block(from_member), bytes.data() + begin, count);
  }
}

}  // namespace

std::unique_ptr<GroupEnd> make_window_end(std::unique_ptr<MpiGroup> group, bool reads_peers) {
  return std::make_unique<WindowEnd>(std::move(group), reads_peers);
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// Groups that span machines: pieces travel as messages between the members, two rounds of pieces at a time, and are
// added from a scratch buffer whose size does not depend on the message.
#include <algorithm>
#include <cstring>

#include "strata/comm/comm.h"
#include "strata/comm/mpi/mpi_group.h"
#include "strata/comm/mpi/requests.h"
#include "strata/comm/sums.h"

namespace strata {
namespace {

constexpr int64_t kScratchBytes = 8 << 20;  // what is received to be added
constexpr int64_t kLargestPiece = 2 << 20;  // large enough for full speed, small enough to overlap with the sums
// Libraries send so much at once. For more they ask the receiver first, and its answer queues behind its own data.
constexpr int64_t kMessageBytes = 60 << 10;
constexpr int64_t kSmallestPiece = 4 << 10;  // above about 1000 members the scratch buffer grows instead
constexpr int64_t kSmallReduce = 16 << 10;   // up to here everybody gets everything and adds it

class MessageEnd : public GroupEnd {
 public:
  explicit MessageEnd(std::unique_ptr<MpiGroup> group)
      : group_(std::move(group)),
        size_(group_->members.size()),
        member_(group_->members.member),
        summed_piece_(std::clamp(kScratchBytes / 2 / (size_ - 1) / 64 * 64, kSmallestPiece, kLargestPiece)),
        rounds_{make_requests(), make_requests()},
        parts_(static_cast<size_t>(size_)) {}

  void all_reduce(DType dtype, std::byte* values, int64_t elements) override {
    const Call call = {CallKind::kAllReduce, dtype, 0, elements};
    if (elements * dtype_bytes(dtype) <= std::min(kSmallReduce, summed_piece_)) return reduce_whole(call, values);
    sum_own_part(call, values);
    collect_parts(call, values);
  }

  void reduce_scatter(DType dtype, std::byte* values, int64_t elements) override {
    sum_own_part({CallKind::kReduceScatter, dtype, 0, elements}, values);
  }

  void all_gather(DType dtype, std::byte* values, int64_t elements) override {
    collect_parts({CallKind::kAllGather, dtype, 0, elements}, values);
  }

  // Members may have different numbers of rounds: any two of them have the same pieces for each other.
  void all_to_all(std::span<const std::span<const std::byte>> send,
                  std::span<const std::span<std::byte>> receive) override {
    const Call call = {CallKind::kAllToAll, DType::kU8, 0, 0};
    std::ranges::copy(send[static_cast<size_t>(member_)], receive[static_cast<size_t>(member_)].begin());
    size_t most = 0;
    for_others([&](int other) {
      most = std::max({most, send[static_cast<size_t>(other)].size(), receive[static_cast<size_t>(other)].size()});
    });
    in_rounds(call, static_cast<int64_t>(most), kLargestPiece, [&](Requests& round, int64_t begin, int64_t end) {
      for_others([&](int other) {
        const std::span<const std::byte> from = send[static_cast<size_t>(other)];
        const std::span<std::byte> to = receive[static_cast<size_t>(other)];
        const auto piece = [&](size_t size) { return std::min(end, static_cast<int64_t>(size)) - begin; };
        if (piece(to.size()) > 0) round.receive(other, tag(call), to.data() + begin, piece(to.size()));
        if (piece(from.size()) > 0) round.send(other, tag(call), from.data() + begin, piece(from.size()));
      });
    });
  }

  void broadcast(int from_member, std::span<std::byte> bytes) override {
    const auto size = static_cast<int64_t>(bytes.size());
    const Call call = {CallKind::kBroadcast, DType::kU8, from_member, size};
    in_rounds(call, size, kLargestPiece, [&](Requests& round, int64_t begin, int64_t end) {
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Ibcast(bytes.data() + begin, static_cast<int>(end - begin), MPI_BYTE, from_member, group_->comm,
                           &request),
                "MPI_Ibcast");
      round.add(request);
    });
  }

  void barrier() override {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(group_->comm, &request), "MPI_Ibarrier");
    rounds_[0].add(request);
    rounds_[0].wait(group_->what({}));
  }

 private:
  static int tag(const Call& call) { return static_cast<int>(call.kind); }

  Requests make_requests() const {
    return {*group_->process, group_->comm, group_->members.ranks, group_->timeout_seconds, kMessageBytes};
  }

  template <typename Body>
  void for_others(Body&& body) const {
    for (int other = 0; other < size_; ++other)
      if (other != member_) body(other);
  }

  // start(round, begin, end) for pieces [begin, end) of `bytes`, then finish(begin, end) when a piece is complete; the
  // next piece is under way by then.
  template <typename Start, typename Finish>
  void in_rounds(const Call& call, int64_t bytes, int64_t piece, Start&& start, Finish&& finish) {
    const std::string what = group_->what(call);
    for (int64_t begin = 0; begin < bytes + piece; begin += piece) {
      if (begin < bytes) start(rounds_[begin / piece % 2], begin, std::min(begin + piece, bytes));
      if (begin == 0) continue;
      rounds_[(begin / piece + 1) % 2].wait(what);
      finish(begin - piece, std::min(begin, bytes));
    }
  }
  template <typename Start>
  void in_rounds(const Call& call, int64_t bytes, int64_t piece, Start&& start) {
    in_rounds(call, bytes, piece, start, [](int64_t, int64_t) {});
  }

  std::byte* scratch(int64_t begin, int64_t piece, int other) {
    scratch_.resize(static_cast<size_t>(2 * summed_piece_ * (size_ - 1)));
    const int64_t slot = begin / piece % 2 * (size_ - 1) + other - (other > member_);
    return scratch_.data() + slot * summed_piece_;
  }

  // Adds what the others sent for bytes [begin, end) of the own values, which start at `own`.
  void add_piece(const Call& call, std::byte* own, int64_t begin, int64_t end, int64_t piece) {
    for (int other = 0; other < size_; ++other)
      parts_[static_cast<size_t>(other)] = other == member_ ? own + begin : scratch(begin, piece, other);
    sum_parts(call.dtype, parts_, own + begin, (end - begin) / dtype_bytes(call.dtype));
  }

  void reduce_whole(const Call& call, std::byte* values) {
    const int64_t bytes = call.elements * dtype_bytes(call.dtype);
    if (bytes == 0) return;
    for_others([&](int other) {
      rounds_[0].receive(other, tag(call), scratch(0, bytes, other), bytes);
      rounds_[0].send(other, tag(call), values, bytes);
    });
    rounds_[0].wait(group_->what(call));
    add_piece(call, values, 0, bytes, bytes);
  }

  void sum_own_part(const Call& call, std::byte* values) {
    const int64_t width = dtype_bytes(call.dtype);
    const auto part = [&](int of) { return part_range(call.elements, size_, of); };
    std::byte* const own = values + part(member_).begin * width;
    const int64_t own_bytes = part(member_).count * width;
    // Parts may be shorter than the first one: pieces that one member lacks are not sent by the others.
    in_rounds(
        call, part(0).count * width, summed_piece_,
        [&](Requests& round, int64_t begin, int64_t end) {
          for_others([&](int other) {
            if (begin < own_bytes)
              round.receive(other, tag(call), scratch(begin, summed_piece_, other), std::min(end, own_bytes) - begin);
            const int64_t other_bytes = part(other).count * width;
            if (begin < other_bytes)
              round.send(other, tag(call), values + part(other).begin * width + begin,
                         std::min(end, other_bytes) - begin);
          });
        },
        [&](int64_t begin, int64_t end) {
          if (begin < own_bytes) add_piece(call, own, begin, std::min(end, own_bytes), summed_piece_);
        });
  }

  void collect_parts(const Call& call, std::byte* values) {
    const int64_t width = dtype_bytes(call.dtype);
    const auto part = [&](int of) { return part_range(call.elements, size_, of); };
    const auto piece = [&](int of, int64_t begin, int64_t end) {
      return std::min(end, part(of).count * width) - begin;  // not positive: this part has none
    };
    in_rounds(call, part(0).count * width, kLargestPiece, [&](Requests& round, int64_t begin, int64_t end) {
      for_others([&](int other) {
        const int64_t received = piece(other, begin, end), sent = piece(member_, begin, end);
        if (received > 0) round.receive(other, tag(call), values + part(other).begin * width + begin, received);
        if (sent > 0) round.send(other, tag(call), values + part(member_).begin * width + begin, sent);
      });
    });
  }

  std::unique_ptr<MpiGroup> group_;
  int size_;
  int member_;
  int64_t summed_piece_;
  std::array<Requests, 2> rounds_;
  std::vector<const std::byte*> parts_;
  std::vector<std::byte> scratch_;
};

}  // namespace

std::unique_ptr<GroupEnd> make_message_end(std::unique_ptr<MpiGroup> group) {
  return std::make_unique<MessageEnd>(std::move(group));
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: each member adds its own part of everybody's values, and copies from and to everybody's buffers.
#include <algorithm>
#include <cstring>

#include "strata/comm/grouped_comm.h"
#include "strata/comm/local/local_world.h"
#include "strata/comm/self/self_end.h"
#include "strata/comm/sums.h"

namespace strata {
namespace {

// A piece that is summed and passed on while it is in the nearest caches.
constexpr int64_t kPieceBytes = 16 * 1024;

void copy_bytes(const std::byte* from, std::byte* to, int64_t num_bytes) {
  if (num_bytes > 0) std::memcpy(to, from, static_cast<size_t>(num_bytes));
}

class LocalEnd : public GroupEnd {
 public:
  LocalEnd(std::shared_ptr<LocalGroup> group, int member)
      : group_(std::move(group)), member_(member), parts_(static_cast<size_t>(group_->size())) {}

  void all_reduce(DType dtype, std::byte* values, int64_t elements) override {
    together({{CallKind::kAllReduce, dtype, 0, elements}, values, values},
             [&] { sum_own_part(dtype, elements, group_->size()); });
  }

  void reduce_scatter(DType dtype, std::byte* values, int64_t elements) override {
    together({{CallKind::kReduceScatter, dtype, 0, elements}, values, values},
             [&] { sum_own_part(dtype, elements, 0); });
  }

  void all_gather(DType dtype, std::byte* values, int64_t elements) override {
    together({{CallKind::kAllGather, dtype, 0, elements}, values, values}, [&] {
      for_others([&](int other) {
        const PartRange part = part_range(elements, group_->size(), other);
        const int64_t begin = part.begin * dtype_bytes(dtype);
        copy_bytes(group_->offer(other).in + begin, values + begin, part.count * dtype_bytes(dtype));
      });
    });
  }

  void all_to_all(std::span<const std::span<const std::byte>> send,
                  std::span<const std::span<std::byte>> receive) override {
    together({{CallKind::kAllToAll, DType::kU8, 0, 0}, nullptr, nullptr, send}, [&] {
      for (int other = 0; other < group_->size(); ++other) {
        const std::span<const std::byte> from = group_->offer(other).parts[static_cast<size_t>(member_)];
        const std::span<std::byte> to = receive[static_cast<size_t>(other)];
        STRATA_CHECK(from.size() == to.size(), "all-to-all: member {} gives {} bytes to member {}, which expects {}",
                     other, from.size(), member_, to.size());
        std::ranges::copy(from, to.begin());
      }
    });
  }

  void broadcast(int from_member, std::span<std::byte> bytes) override {
    const auto size = static_cast<int64_t>(bytes.size());
    together({{CallKind::kBroadcast, DType::kU8, from_member, size}, bytes.data(), bytes.data()}, [&] {
      if (member_ != from_member) copy_bytes(group_->offer(from_member).in, bytes.data(), size);
    });
  }

  void barrier() override {
    together({}, [] {});
  }

 private:
  template <typename Work>
  void together(const LocalGroup::Offer& offer, Work&& work) {
    group_->enter(member_, offer);
    work();
    group_->leave(member_);
  }

  template <typename Body>
  void for_others(Body&& body) {
    for (int other = 0; other < group_->size(); ++other)
      if (other != member_) body(other);
  }

  // Nobody else reads or writes this member's part of anybody's values. The sum goes to the own values and to those of
  // the others below `receivers`.
  void sum_own_part(DType dtype, int64_t elements, int receivers) {
    const int64_t width = dtype_bytes(dtype);
    const PartRange part = part_range(elements, group_->size(), member_);
    for (int64_t done = 0; done < part.count; done += kPieceBytes / width) {
      const int64_t count = std::min(kPieceBytes / width, part.count - done);
      const int64_t begin = (part.begin + done) * width;
      for (int other = 0; other < group_->size(); ++other)
        parts_[static_cast<size_t>(other)] = group_->offer(other).in + begin;
      std::byte* const sum = group_->offer(member_).out + begin;
      sum_parts(dtype, parts_, sum, count);
      for (int other = 0; other < receivers; ++other)
        if (other != member_) copy_bytes(sum, group_->offer(other).out + begin, count * width);
    }
  }

  std::shared_ptr<LocalGroup> group_;
  int member_;
  std::vector<const std::byte*> parts_;
};

class LocalComm : public GroupedComm {
 public:
  LocalComm(std::shared_ptr<LocalWorld> world, int rank)
      : GroupedComm(rank, world->num_ranks()), world_(std::move(world)) {}

  int ranks_on_node() const override { return world_->num_ranks(); }
  void abort(const std::string& reason) override { world_->end(rank(), reason); }

 protected:
  std::unique_ptr<GroupEnd> make_end(const GroupMembers& members) override {
    if (members.size() == 1) return std::make_unique<SelfEnd>();
    return std::make_unique<LocalEnd>(world_->group(members), members.member);
  }
  void send_bytes(int peer, int lane, std::span<const std::byte> bytes) override {
    world_->box(rank(), peer, lane).send(bytes);
  }
  void receive_bytes(int peer, int lane, std::span<std::byte> bytes) override {
    world_->box(peer, rank(), lane).receive(bytes);
  }
  void throw_if_ended(const std::string& what) const override { world_->throw_if_ended(what); }

 private:
  std::shared_ptr<LocalWorld> world_;
};

}  // namespace

std::vector<std::unique_ptr<Comm>> make_local_comms(int num_ranks, double timeout_seconds) {
  const auto world = std::make_shared<LocalWorld>(num_ranks, timeout_seconds);
  std::vector<std::unique_ptr<Comm>> comms;
  for (int rank = 0; rank < num_ranks; ++rank) comms.push_back(std::make_unique<LocalComm>(world, rank));
  return comms;
}

}  // namespace strata

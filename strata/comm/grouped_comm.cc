// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/grouped_comm.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

namespace strata {
namespace {

// Elements that member `own` gives away when everyone's part goes to its owner, and when its part goes to everyone.
int64_t scattered(int64_t elements, const Group& group) {
  return elements - part_range(elements, group.size, group.member).count;
}
int64_t gathered(int64_t elements, const Group& group) {
  return part_range(elements, group.size, group.member).count * (group.size - 1);
}

bool is_summed(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF64; }

}  // namespace

// In the order in which groups were made, which is the same on all members: to end one, a backend may wait for them.
GroupedComm::~GroupedComm() {
  while (!entries_.empty()) entries_.pop_front();
}

Group GroupedComm::group(const std::string& name, std::span<const int> ranks, int lane) {
  const std::lock_guard making(making_);
  GroupMembers members{name, {ranks.begin(), ranks.end()}, lane};
  const auto own = std::ranges::find(ranks, rank_);
  STRATA_CHECK(own != ranks.end(), "rank {} makes group '{}' of ranks {}", rank_, name, fmt::join(ranks, ", "));
  for (const int rank : ranks)
    STRATA_CHECK(rank >= 0 && rank < size_ && std::ranges::count(ranks, rank) == 1, "group '{}' of {} ranks: {}", name,
                 size_, fmt::join(ranks, ", "));
  members.member = static_cast<int>(own - ranks.begin());
  const auto same = [&](const Entry& one) { return one.members.ranks == members.ranks && one.members.lane == lane; };
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(entries_, same);
    if (found != entries_.end()) return {static_cast<int>(found - entries_.begin()), members.size(), members.member};
  }
  std::unique_ptr<GroupEnd> end = make_end(members);
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.emplace_back();
  entry.members = std::move(members);
  entry.end = std::move(end);
  return {static_cast<int>(entries_.size()) - 1, entry.members.size(), entry.members.member};
}

GroupedComm::Entry& GroupedComm::entry(const Group& group) {
  const std::lock_guard lock(mutex_);
  STRATA_CHECK(group.id >= 0 && group.id < static_cast<int>(entries_.size()), "group {} of {}", group.id,
               entries_.size());
  return entries_[static_cast<size_t>(group.id)];
}

GroupEnd& GroupedComm::begin(const Group& group, const Call& call, int64_t sent) {
  Entry& of = entry(group);
  throw_if_ended(fmt::format("rank {}: {} in group '{}'", rank_, describe(call), of.members.name));
  Counter& counter = of.counters[static_cast<size_t>(call.kind)];
  const bool typed = call.kind != CallKind::kBroadcast && call.kind != CallKind::kAllToAll;
  counter.calls.fetch_add(1, std::memory_order_relaxed);
  counter.elements.fetch_add(typed ? sent : 0, std::memory_order_relaxed);
  counter.bytes.fetch_add(sent * dtype_bytes(call.dtype), std::memory_order_relaxed);
  return *of.end;
}

void GroupedComm::all_reduce(const Group& group, DType dtype, std::byte* values, int64_t elements) {
  STRATA_CHECK(is_summed(dtype), "all-reduce of {}", dtype_name(dtype));
  const int64_t sent = scattered(elements, group) + gathered(elements, group);
  begin(group, {CallKind::kAllReduce, dtype, 0, elements}, sent).all_reduce(dtype, values, elements);
}

void GroupedComm::reduce_scatter(const Group& group, DType dtype, std::byte* values, int64_t elements) {
  STRATA_CHECK(is_summed(dtype), "reduce-scatter of {}", dtype_name(dtype));
  const int64_t sent = scattered(elements, group);
  begin(group, {CallKind::kReduceScatter, dtype, 0, elements}, sent).reduce_scatter(dtype, values, elements);
}

void GroupedComm::all_gather(const Group& group, DType dtype, std::byte* values, int64_t elements) {
  const int64_t sent = gathered(elements, group);
  begin(group, {CallKind::kAllGather, dtype, 0, elements}, sent).all_gather(dtype, values, elements);
}

void GroupedComm::all_to_all(const Group& group, std::span<const std::span<const std::byte>> send,
                             std::span<const std::span<std::byte>> receive) {
  const auto size = static_cast<size_t>(group.size), member = static_cast<size_t>(group.member);
  STRATA_CHECK(send.size() == size && receive.size() == size, "all-to-all of {} and {} parts over {} members",
               send.size(), receive.size(), size);
  STRATA_CHECK(send[member].size() == receive[member].size(), "all-to-all: {} own bytes, {} expected",
               send[member].size(), receive[member].size());
  int64_t sent = 0;
  for (size_t other = 0; other < size; ++other)
    if (other != member) sent += static_cast<int64_t>(send[other].size());
  begin(group, {CallKind::kAllToAll, DType::kU8, 0, 0}, sent).all_to_all(send, receive);
}

void GroupedComm::broadcast(const Group& group, int from_member, std::span<std::byte> bytes) {
  STRATA_CHECK(from_member >= 0 && from_member < group.size, "broadcast from member {} of {}", from_member, group.size);
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t sent = from_member == group.member ? size * (group.size - 1) : 0;
  begin(group, {CallKind::kBroadcast, DType::kU8, from_member, size}, sent).broadcast(from_member, bytes);
}

void GroupedComm::barrier(const Group& group) { begin(group, {}, 0).barrier(); }

void GroupedComm::check_peer(CallKind kind, int peer) const {
  STRATA_CHECK(peer >= 0 && peer < size_ && peer != rank_, "rank {} of {}: {} with rank {}", rank_, size_,
               call_name(kind), peer);
  throw_if_ended(fmt::format("rank {}: {} with rank {}", rank_, call_name(kind), peer));
}

void GroupedComm::send(int peer, int lane, std::span<const std::byte> bytes) {
  check_peer(CallKind::kSend, peer);
  Counter& counter = peers_[static_cast<size_t>(CallKind::kSend)];
  counter.calls.fetch_add(1, std::memory_order_relaxed);
  counter.bytes.fetch_add(static_cast<int64_t>(bytes.size()), std::memory_order_relaxed);
  send_bytes(peer, lane, bytes);
}

void GroupedComm::receive(int peer, int lane, std::span<std::byte> bytes) {
  check_peer(CallKind::kReceive, peer);
  peers_[static_cast<size_t>(CallKind::kReceive)].calls.fetch_add(1, std::memory_order_relaxed);
  receive_bytes(peer, lane, bytes);
}

std::vector<CommCount> GroupedComm::counts() const {
  std::map<std::pair<std::string, size_t>, CommCount> sums;  // by group and kind
  const auto add = [&](const std::string& group, const Counters& counters) {
    for (size_t kind = 0; kind < counters.size(); ++kind) {
      if (counters[kind].calls == 0) continue;
      CommCount& sum = sums[{group, kind}];
      sum.kind = call_name(static_cast<CallKind>(kind));
      sum.group = group;
      sum.calls += counters[kind].calls;
      sum.elements += counters[kind].elements;
      sum.bytes += counters[kind].bytes;
    }
  };
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) add(entry.members.name, entry.counters);
  add("peer", peers_);
  std::vector<CommCount> counts;
  for (auto& [key, sum] : sums) counts.push_back(std::move(sum));
  return counts;
}

}  // namespace strata

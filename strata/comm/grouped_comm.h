// SPDX-License-Identifier: Apache-2.0
// What is the same in every Comm: groups are cached, arguments checked, calls counted, and passed to the backend's end
// of the group. A backend makes the ends, moves bytes between two ranks, and ends a run.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "strata/comm/comm.h"
#include "strata/comm/group_end.h"

namespace strata {

class GroupedComm : public Comm {
 public:
  GroupedComm(int rank, int size) : rank_(rank), size_(size) {}
  ~GroupedComm() override;

  int rank() const final { return rank_; }
  int size() const final { return size_; }
  Group group(const std::string& name, std::span<const int> ranks, int lane) final;

  void all_reduce(const Group& group, DType dtype, std::byte* values, int64_t elements) final;
  void reduce_scatter(const Group& group, DType dtype, std::byte* values, int64_t elements) final;
  void all_gather(const Group& group, DType dtype, std::byte* values, int64_t elements) final;
  void all_to_all(const Group& group, std::span<const std::span<const std::byte>> send,
                  std::span<const std::span<std::byte>> receive) final;
  void broadcast(const Group& group, int from_member, std::span<std::byte> bytes) final;
  void barrier(const Group& group) final;
  void send(int peer, int lane, std::span<const std::byte> bytes) final;
  void receive(int peer, int lane, std::span<std::byte> bytes) final;

  std::vector<CommCount> counts() const final;

 protected:
  // Called with no lock held that another call of this Comm needs, except that groups are made one at a time.
  virtual std::unique_ptr<GroupEnd> make_end(const GroupMembers& members) = 0;
  virtual void send_bytes(int peer, int lane, std::span<const std::byte> bytes) = 0;
  virtual void receive_bytes(int peer, int lane, std::span<std::byte> bytes) = 0;
  // Throws when the run has ended; `what` begins the message.
  virtual void throw_if_ended(const std::string& what) const = 0;

 private:
  struct Counter {
    std::atomic<int64_t> calls = 0, elements = 0, bytes = 0;
  };
  using Counters = std::array<Counter, kNumCallKinds>;
  struct Entry {
    GroupMembers members;
    std::unique_ptr<GroupEnd> end;
    Counters counters;
  };

  Entry& entry(const Group& group);
  // The end to call, after the checks that every call has; counts `sent` elements.
  GroupEnd& begin(const Group& group, const Call& call, int64_t sent);
  void check_peer(CallKind kind, int peer) const;

  int rank_;
  int size_;
  std::mutex making_;          // held while a group is made
  mutable std::mutex mutex_;   // guards entries_
  std::deque<Entry> entries_;  // by id; never moved
  Counters peers_;
};

}  // namespace strata

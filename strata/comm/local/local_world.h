// SPDX-License-Identifier: Apache-2.0
// What the ranks of one process share: their groups, the boxes through which two ranks exchange, and the reason for
// which the run ended. Ranks read and write each other's buffers; so no call returns, whatever happens, while another
// rank may still touch what it was given.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "strata/comm/group_end.h"
#include "strata/comm/local/wait_point.h"

namespace strata {

class LocalWorld;

// The members of one group on one lane. A call is enter(), work on all members' buffers, leave().
class LocalGroup {
 public:
  // What a member brings to a call.
  struct Offer {
    Call call;
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::span<const std::span<const std::byte>> parts = {};  // of an all-to-all: what goes to each member
  };

  LocalGroup(LocalWorld& world, const GroupMembers& members);

  // Returns when all members have entered, with the same call. Throws when they do not in time or the run has ended;
  // then no member comes through.
  void enter(int member, const Offer& offer);
  // Returns when all members are here. They come, as nothing between enter() and leave() waits.
  void leave(int member);

  const Offer& offer(int member) const { return offers_[static_cast<size_t>(member)]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  void wake() { point_.wake(); }

 private:
  // Counts this member in; returns the number of arrivals at which all members are there.
  int64_t arrive(int member);
  // Takes the member's arrival back, unless all have arrived: then false.
  bool withdraw(int member, int64_t target);
  void check_equal_calls() const;
  [[noreturn]] void throw_missing(int member) const;

  LocalWorld& world_;
  std::string name_;
  std::vector<int> ranks_;
  std::vector<Offer> offers_;                 // by member; written before arriving, read until all have left
  std::vector<std::atomic<int64_t>> passed_;  // by member: arrivals that were not taken back
  std::vector<std::atomic<int64_t>> came_;    // by member: to the how manieth arrival it last came
  std::atomic<int64_t> arrivals_ = 0;         // of all members
  WaitPoint point_;
};

// From one rank to another on one lane: the receiver copies from the sender's memory.
class LocalBox {
 public:
  LocalBox(LocalWorld& world, int from, int to, int lane);
  void send(std::span<const std::byte> bytes);
  void receive(std::span<std::byte> bytes);
  void wake() { point_.wake(); }

 private:
  enum class State : uint8_t { kEmpty, kPosted, kTaken, kCopied };

  LocalWorld& world_;
  int from_, to_, lane_;
  std::span<const std::byte> posted_;
  std::atomic<State> state_ = State::kEmpty;
  WaitPoint point_;
};

class LocalWorld {
 public:
  LocalWorld(int num_ranks, double timeout_seconds);

  int num_ranks() const { return num_ranks_; }
  double timeout_seconds() const { return timeout_seconds_; }
  bool threads_have_cores() const { return threads_have_cores_; }

  std::shared_ptr<LocalGroup> group(const GroupMembers& members);
  LocalBox& box(int from, int to, int lane);

  void end(int rank, const std::string& reason);
  bool ended() const { return ended_.load(); }
  void throw_if_ended(const std::string& what) const;

 private:
  int num_ranks_;
  double timeout_seconds_;
  bool threads_have_cores_;
  std::atomic<bool> ended_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::string reason_;
  std::map<std::pair<std::vector<int>, int>, std::shared_ptr<LocalGroup>> groups_;
  std::map<std::tuple<int, int, int>, std::unique_ptr<LocalBox>> boxes_;
};

}  // namespace strata

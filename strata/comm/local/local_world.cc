// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/local/local_world.h"

#include <fmt/ranges.h>

#include <cstring>
#include <thread>

namespace strata {

LocalGroup::LocalGroup(LocalWorld& world, const GroupMembers& members)
    : world_(world),
      name_(members.name),
      ranks_(members.ranks),
      offers_(members.ranks.size()),
      passed_(members.ranks.size()),
      came_(members.ranks.size()),
      point_(world.threads_have_cores()) {}

int64_t LocalGroup::arrive(int member) {
  const auto own = static_cast<size_t>(member);
  const int64_t turn = passed_[own].fetch_add(1) + 1;
  came_[own].store(turn);
  if (arrivals_.fetch_add(1) + 1 == turn * size()) point_.wake();
  return turn * size();
}

bool LocalGroup::withdraw(int member, int64_t target) {
  int64_t arrivals = arrivals_.load();
  while (arrivals < target)
    if (arrivals_.compare_exchange_weak(arrivals, arrivals - 1)) {
      passed_[static_cast<size_t>(member)].fetch_sub(1);
      return true;
    }
  return false;
}

void LocalGroup::enter(int member, const Offer& offer) {
  offers_[static_cast<size_t>(member)] = offer;
  const int64_t target = arrive(member);
  point_.wait(deadline_after(world_.timeout_seconds()), [&] { return arrivals_.load() >= target || world_.ended(); });
  if (arrivals_.load() < target && withdraw(member, target)) throw_missing(member);
  check_equal_calls();
}

void LocalGroup::leave(int member) {
  const int64_t target = arrive(member);
  point_.wait({}, [&] { return arrivals_.load() >= target; });
}

void LocalGroup::check_equal_calls() const {
  for (size_t member = 1; member < offers_.size(); ++member)
    STRATA_CHECK(offers_[member].call == offers_[0].call, "in group '{}' rank {} calls {}, rank {} calls {}", name_,
                 ranks_[0], describe(offers_[0].call), ranks_[member], describe(offers_[member].call));
}

void LocalGroup::throw_missing(int member) const {
  const auto own = static_cast<size_t>(member);
  const std::string what = fmt::format("rank {}: {} in group '{}'", ranks_[own], describe(offers_[own].call), name_);
  world_.throw_if_ended(what);
  std::vector<int> missing;
  for (size_t other = 0; other < ranks_.size(); ++other)
    if (came_[other] < came_[own]) missing.push_back(ranks_[other]);
  throw_failed_run("{}: waited {} s for ranks {} of {}", what, world_.timeout_seconds(), fmt::join(missing, ", "),
                   fmt::join(ranks_, ", "));
}

LocalBox::LocalBox(LocalWorld& world, int from, int to, int lane)
    : world_(world), from_(from), to_(to), lane_(lane), point_(world.threads_have_cores()) {}

void LocalBox::send(std::span<const std::byte> bytes) {
  posted_ = bytes;
  state_.store(State::kPosted);
  point_.wake();
  const auto copied = [&] { return state_.load() == State::kCopied; };
  point_.wait(deadline_after(world_.timeout_seconds()), [&] { return copied() || world_.ended(); });
  State posted = State::kPosted;
  if (!copied() && state_.compare_exchange_strong(posted, State::kEmpty)) {
    const std::string what =
        fmt::format("rank {}: send of {} bytes to rank {} on lane {}", from_, bytes.size(), to_, lane_);
    world_.throw_if_ended(what);
    throw_failed_run("{}: waited {} s for rank {} to receive", what, world_.timeout_seconds(), to_);
  }
  point_.wait({}, copied);  // it is being copied: the memory is in use till then
  state_.store(State::kEmpty);
}

void LocalBox::receive(std::span<std::byte> bytes) {
  point_.wait(deadline_after(world_.timeout_seconds()),
              [&] { return state_.load() == State::kPosted || world_.ended(); });
  State posted = State::kPosted;
  if (!state_.compare_exchange_strong(posted, State::kTaken)) {
    const std::string what =
        fmt::format("rank {}: receive of {} bytes from rank {} on lane {}", to_, bytes.size(), from_, lane_);
    world_.throw_if_ended(what);
    throw_failed_run("{}: waited {} s for rank {} to send", what, world_.timeout_seconds(), from_);
  }
  STRATA_CHECK(posted_.size() == bytes.size(), "rank {} sends {} bytes to rank {} on lane {}, which receives {}", from_,
               posted_.size(), to_, lane_, bytes.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), posted_.data(), bytes.size());
  state_.store(State::kCopied);
  point_.wake();
}

LocalWorld::LocalWorld(int num_ranks, double timeout_seconds)
    : num_ranks_(num_ranks),
      timeout_seconds_(timeout_seconds),
      threads_have_cores_(num_ranks <= static_cast<int>(std::thread::hardware_concurrency())) {
  STRATA_CHECK(num_ranks >= 1 && timeout_seconds > 0, "{} ranks that wait {} s", num_ranks, timeout_seconds);
}

std::shared_ptr<LocalGroup> LocalWorld::group(const GroupMembers& members) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<LocalGroup>& group = groups_[{members.ranks, members.lane}];
  if (!group) group = std::make_shared<LocalGroup>(*this, members);
  return group;
}

LocalBox& LocalWorld::box(int from, int to, int lane) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<LocalBox>& box = boxes_[{from, to, lane}];
  if (!box) box = std::make_unique<LocalBox>(*this, from, to, lane);
  return *box;
}

void LocalWorld::end(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  reason_ = fmt::format("rank {} ended the run: {}", rank, reason);
  ended_.store(true);
  for (const auto& [key, group] : groups_) group->wake();
  for (const auto& [key, box] : boxes_) box->wake();
}

void LocalWorld::throw_if_ended(const std::string& what) const {
  if (!ended_) return;
  const std::lock_guard lock(mutex_);
  throw_failed_run("{}: {}", what, reason_);
}

}  // namespace strata

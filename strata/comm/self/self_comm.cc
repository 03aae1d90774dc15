// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <mutex>
#include <optional>

#include "strata/comm/grouped_comm.h"
#include "strata/comm/self/self_end.h"

namespace strata {
namespace {

class SelfComm : public GroupedComm {
 public:
  SelfComm() : GroupedComm(0, 1) {}
  int ranks_on_node() const override { return 1; }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (!reason_) reason_ = reason;
  }

 protected:
  std::unique_ptr<GroupEnd> make_end(const GroupMembers&) override { return std::make_unique<SelfEnd>(); }
  // There is no peer that the checks before let through.
  void send_bytes(int, int, std::span<const std::byte>) override {}
  void receive_bytes(int, int, std::span<std::byte>) override {}

  void throw_if_ended(const std::string& what) const override {
    const std::lock_guard lock(mutex_);
    if (reason_) throw_failed_run("{}: rank 0 ended the run: {}", what, *reason_);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<std::string> reason_;
};

}  // namespace

void SelfEnd::all_to_all(std::span<const std::span<const std::byte>> send,
                         std::span<const std::span<std::byte>> receive) {
  std::ranges::copy(send[0], receive[0].begin());
}

std::unique_ptr<Comm> make_self_comm() { return std::make_unique<SelfComm>(); }

}  // namespace strata

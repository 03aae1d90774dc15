// SPDX-License-Identifier: Apache-2.0
// The compute team: a fixed set of threads that owns the cores of one rank. run() executes one function on every member
// and returns when all are done; the caller is member 0. Workers spin briefly between calls, then sleep.
// One caller at a time; several teams may live in one process. No allocation after construction. Workers block all
// signals; a handler on the caller's thread needs a stack of its own (SA_ONSTACK), since kernels of oneDNN move the
// stack pointer into the heap.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace strata {

class Team {
 public:
  explicit Team(int num_threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int num_threads() const { return num_threads_; }

  // body(member, num_members) on every member.
  template <typename Body>
  void run(Body&& body) {
    run_erased([](void* context, int member,
                  int members) { (*static_cast<std::remove_reference_t<Body>*>(context))(member, members); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }

  // body(begin, end) over [0, count) in contiguous parts, one per member, borders on multiples of `grain`.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    if (count <= 0) return;
    const int64_t blocks = (count + grain - 1) / grain;
    if (blocks == 1 || num_threads_ == 1) return body(int64_t{0}, count);
    run([&](int member, int members) {
      const int64_t begin = std::min(count, blocks * member / members * grain);
      const int64_t end = std::min(count, blocks * (member + 1) / members * grain);
      if (begin < end) body(begin, end);
    });
  }

  // body(index) for index in [0, count), handed out dynamically; for items of unequal cost.
  // Which member runs an item is not determined: the body must not depend on it.
  template <typename Body>
  void for_each(int64_t count, Body&& body) {
    std::atomic<int64_t> next{0};
    run([&](int, int) {
      for (int64_t index = next.fetch_add(1); index < count; index = next.fetch_add(1)) body(index);
    });
  }

 private:
  using Erased = void (*)(void* context, int member, int members);
  void run_erased(Erased body, void* context);
  void work(int member);

  int num_threads_;
  std::vector<std::thread> workers_;
  Erased body_ = nullptr;
  void* context_ = nullptr;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// Runs a program on one thread per queue: the caller's for compute, one of its own for every other. An instruction
// starts when the ones it waits for are done. Waits are short spins, then sleeps. One caller at a time.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "strata/program/program.h"

namespace strata {

class QueueThreads {
 public:
  // Threads for the queues of these programs, which must outlive the object. `on_failure` is called once, with what the
  // first instruction that failed threw, and must make instructions that wait for other ranks end.
  QueueThreads(std::span<const Program> programs, std::function<void(const std::string&)> on_failure);
  ~QueueThreads();
  QueueThreads(const QueueThreads&) = delete;
  QueueThreads& operator=(const QueueThreads&) = delete;

  // Whether a program has instructions on more than one queue.
  bool has_several(const Program& program) const;

  // `execute` is called for every instruction, on its queue's thread. Complete on return; throws what failed first.
  void run(const Program& program, const std::function<void(const Instruction&)>& execute);

 private:
  using Split = std::array<std::vector<int>, kNumQueues>;  // instruction indices by queue, in list order

  void work(int queue);
  void run_queue(int queue);
  void await(const Wait& wait);
  void fail(std::exception_ptr error);

  std::map<const Program*, Split> splits_;
  std::function<void(const std::string&)> on_failure_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable started_, finished_;
  int64_t generation_ = 0;
  int num_running_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  const Program* program_ = nullptr;
  const std::function<void(const Instruction&)>* execute_ = nullptr;
  std::array<std::atomic<int>, kNumQueues> done_{};  // instructions finished; kFailed and more: give up
};

}  // namespace strata

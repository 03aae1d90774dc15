// SPDX-License-Identifier: Apache-2.0
#include "strata/exec/queues.h"

#include <algorithm>

#include "strata/base/error.h"

namespace strata {
namespace {

constexpr int kFailed = 1 << 30;
constexpr int kSpins = 2000;
constexpr int kCompute = static_cast<int>(Queue::kCompute);

struct GivenUp {};  // another instruction failed

}  // namespace

QueueThreads::QueueThreads(std::span<const Program> programs, std::function<void(const std::string&)> on_failure)
    : on_failure_(std::move(on_failure)) {
  std::array<bool, kNumQueues> used{};
  for (const Program& program : programs) {
    Split& split = splits_[&program];
    for (int index = 0; index < static_cast<int>(program.instructions.size()); ++index)
      split[static_cast<size_t>(program.instructions[index].queue)].push_back(index);
    if (!has_several(program)) continue;
    for (int queue = 0; queue < kNumQueues; ++queue) used[queue] |= !split[queue].empty();
  }
  for (int queue = 0; queue < kNumQueues; ++queue)
    if (queue != kCompute && used[queue]) threads_.emplace_back([this, queue] { work(queue); });
}

QueueThreads::~QueueThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool QueueThreads::has_several(const Program& program) const {
  const Split& split = splits_.at(&program);
  return std::count_if(split.begin(), split.end(), [](const std::vector<int>& queue) { return !queue.empty(); }) > 1;
}

void QueueThreads::run(const Program& program, const std::function<void(const Instruction&)>& execute) {
  for (std::atomic<int>& done : done_) done.store(0, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    program_ = &program;
    execute_ = &execute;
    error_ = nullptr;
    num_running_ = static_cast<int>(threads_.size());
    ++generation_;
  }
  started_.notify_all();
  run_queue(kCompute);
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return num_running_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

void QueueThreads::work(int queue) {
  for (int64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      started_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      if (stopping_) return;
      seen = generation_;
    }
    run_queue(queue);
    const std::lock_guard lock(mutex_);
    if (--num_running_ == 0) finished_.notify_all();
  }
}

void QueueThreads::run_queue(int queue) {
  try {
    for (const int index : splits_.at(program_)[queue]) {
      const Instruction& instruction = program_->instructions[index];
      for (const Wait& wait : instruction.waits) await(wait);
      (*execute_)(instruction);
      done_[queue].fetch_add(1, std::memory_order_release);
      done_[queue].notify_all();
    }
  } catch (const GivenUp&) {
  } catch (...) {
    fail(std::current_exception());
  }
}

void QueueThreads::await(const Wait& wait) {
  std::atomic<int>& done = done_[static_cast<size_t>(wait.queue)];
  int now = done.load(std::memory_order_acquire);
  for (int spin = 0; now < wait.count && spin < kSpins; ++spin) now = done.load(std::memory_order_acquire);
  while (now < wait.count) {
    done.wait(now, std::memory_order_acquire);
    now = done.load(std::memory_order_acquire);
  }
  if (now >= kFailed) throw GivenUp();
}

void QueueThreads::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = error;
  }
  for (std::atomic<int>& done : done_) {
    done.fetch_add(kFailed, std::memory_order_release);
    done.notify_all();
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    on_failure_(exception.what());
  }
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/device/cpu/team.h"

#include <omp.h>
#include <pthread.h>

#include <csignal>

#include "strata/base/error.h"

namespace strata {
namespace {

constexpr int kSpins = 2000;   // a few tens of us: longer than the gap between two kernels of a step
constexpr int kYields = 1000;  // a few hundred us on an idle core; on a busy one the thread waited for gets to run

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins, yields, then sleeps, until `value` differs from `old`.
template <typename T>
void wait_for_change(const std::atomic<T>& value, T old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  for (int turn = 0; turn < kYields; ++turn) {
    if (value.load(std::memory_order_acquire) != old) return;
    std::this_thread::yield();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

Team::Team(int num_threads) : num_threads_(num_threads) {
  STRATA_CHECK(num_threads >= 1, "a team of {} threads", num_threads);
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  for (int member = 1; member < num_threads; ++member) workers_.emplace_back([this, member] { work(member); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

Team::~Team() {
  stopping_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Team::work(int member) {
  omp_set_num_threads(1);  // oneDNN calls from a member stay on that member
  for (uint64_t seen = 0;;) {
    wait_for_change(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    body_(context_, member, num_threads_);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void Team::run_erased(Erased body, void* context) {
  body_ = body;
  context_ = context;
  running_.store(num_threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  const int saved_threads = omp_get_max_threads();
  omp_set_num_threads(1);
  body(context, 0, num_threads_);
  omp_set_num_threads(saved_threads);
  for (int left = running_.load(std::memory_order_acquire); left != 0; left = running_.load(std::memory_order_acquire))
    wait_for_change(running_, left);
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/signals.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <mutex>

namespace strata {
namespace {

// Without locks, so that handlers may write them.
std::atomic<int> stop_flag = 0;
std::atomic<int> save_flag = 0;
static_assert(std::atomic<int>::is_always_lock_free);

constexpr long kStackBytes = 64 << 10;

void on_stop(int) { stop_flag = 1; }
void on_save(int) { save_flag = 1; }

struct Handler {
  int signal;
  void (*function)(int);
  struct sigaction before;
};

std::mutex mutex;
int num_alive = 0;
std::array<Handler, 4> handlers = {
    {{SIGTERM, on_stop, {}}, {SIGINT, on_stop, {}}, {SIGUSR2, on_stop, {}}, {SIGUSR1, on_save, {}}}};

void install(Handler& handler) {
  struct sigaction action = {};
  action.sa_handler = handler.function;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(handler.signal, &action, &handler.before);
}

}  // namespace

SignalRequests::SignalRequests() : stack_(static_cast<size_t>(std::max(kStackBytes, 2 * sysconf(_SC_MINSIGSTKSZ)))) {
  const stack_t stack = {stack_.data(), 0, stack_.size()};
  sigaltstack(&stack, &stack_before_);
  const std::lock_guard lock(mutex);
  if (num_alive++ > 0) return;
  stop_flag = save_flag = 0;
  for (Handler& handler : handlers) install(handler);
}

SignalRequests::~SignalRequests() {
  {
    const std::lock_guard lock(mutex);
    if (--num_alive == 0)
      for (const Handler& handler : handlers) sigaction(handler.signal, &handler.before, nullptr);
  }
  sigaltstack(&stack_before_, nullptr);
}

bool SignalRequests::stop_requested() const { return stop_flag != 0; }

bool SignalRequests::take_save_request() { return save_flag.exchange(0) != 0; }

}  // namespace strata

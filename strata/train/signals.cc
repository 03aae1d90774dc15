// SPDX-License-Identifier: Apache-2.0
#include "strata/train/signals.h"

#include <atomic>

namespace strata {
namespace {

// Without locks, so that handlers may write them.
std::atomic<int> stop_flag = 0;
std::atomic<int> save_flag = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void on_stop(int) { stop_flag = 1; }
void on_save(int) { save_flag = 1; }

void install(int signal, void (*handler)(int), struct sigaction* old) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, old);
}

}  // namespace

SignalRequests::SignalRequests() {
  stop_flag = 0;
  save_flag = 0;
  install(SIGTERM, on_stop, &old_term_);
  install(SIGINT, on_stop, &old_int_);
  install(SIGUSR1, on_save, &old_usr1_);
  install(SIGUSR2, on_stop, &old_usr2_);
}

SignalRequests::~SignalRequests() {
  sigaction(SIGTERM, &old_term_, nullptr);
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGUSR1, &old_usr1_, nullptr);
  sigaction(SIGUSR2, &old_usr2_, nullptr);
}

bool SignalRequests::stop_requested() const { return stop_flag != 0; }

bool SignalRequests::take_save_request() { return save_flag.exchange(0) != 0; }

}  // namespace strata

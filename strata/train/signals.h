// SPDX-License-Identifier: Apache-2.0
// What a run is asked to do from outside: SIGTERM, SIGINT and SIGUSR2 (which mpirun hands on to its ranks) save and
// stop after the running step, SIGUSR1 saves after it. The one process-wide thing in Strata, since signals are:
// handlers are installed while any SignalRequests lives, and put back after. Ranks that are threads each have one and
// agree. On the thread that makes and destroys one, handlers run on a stack of their own: kernels that oneDNN makes use
// the stack pointer for addresses in the heap, where a handler's frame would be written. Members of a compute team
// block signals.
#pragma once

#include <signal.h>

#include <cstddef>
#include <vector>

namespace strata {

class SignalRequests {
 public:
  SignalRequests();
  ~SignalRequests();
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;

  bool stop_requested() const;
  // True once per SIGUSR1.
  bool take_save_request();

 private:
  std::vector<std::byte> stack_;
  stack_t stack_before_;
};

}  // namespace strata

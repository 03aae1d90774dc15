// SPDX-License-Identifier: Apache-2.0
// What a run is asked to do from outside: SIGTERM, SIGINT and SIGUSR2 (which mpirun hands on to its ranks) save and stop
// after the running step, SIGUSR1 saves after it. The one process-wide thing in Strata, since signals are: handlers are installed while a SignalRequests lives, and
// put back after.
#pragma once

#include <csignal>

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
  struct sigaction old_term_, old_int_, old_usr1_, old_usr2_;
};

}  // namespace strata

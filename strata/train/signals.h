// SPDX-License-Identifier: Apache-2.0
// What a run is asked to do from outside: SIGTERM, SIGINT and SIGUSR2 (which mpirun hands on to its ranks) save and stop
// after the running step, SIGUSR1 saves after it. The one process-wide thing in Strata, since signals are: handlers are
// installed while any SignalRequests lives, and put back after. Ranks that are threads each have one and agree.
#pragma once

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
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// MPI in this process: started once, finalised when the last user is gone. What every call needs around it: error codes
// become Error, and all waits are loops that poll, so that a rank that does not come is noticed.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "strata/comm/mpi/polling.h"

namespace strata {

// Throws Error when `code` is not success.
void check_mpi(int code, const char* call);

class MpiProcess {
 public:
  // The one of this process; starts MPI if there is none.
  static std::shared_ptr<MpiProcess> get();
  ~MpiProcess();
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // By rank: the lowest rank on its machine.
  const std::vector<int>& nodes() const { return nodes_; }
  int ranks_on_node() const;
  // Every rank of this machine can have a core, so that spinning takes it from none.
  bool ranks_have_cores() const;
  Polling polling() const { return polling_; }

  // The other ranks cannot be waited for any more: nothing collective happens from here on, and the exit of this
  // process ends the job.
  void give_up();
  bool given_up() const { return given_up_; }

 private:
  MpiProcess();
  void find_nodes();

  bool owns_mpi_ = false;
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> nodes_;
  Polling polling_;
  std::atomic<bool> given_up_ = false;
};

}  // namespace strata

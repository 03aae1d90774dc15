// SPDX-License-Identifier: Apache-2.0
// What both kinds of MPI groups have: a communicator of their own, freed when no rank has given up.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "strata/comm/group_end.h"
#include "strata/comm/mpi/mpi_process.h"

namespace strata {

struct MpiGroup {
  MpiGroup(std::shared_ptr<MpiProcess> of, GroupMembers group, MPI_Comm own, double timeout)
      : process(std::move(of)), members(std::move(group)), comm(own), timeout_seconds(timeout) {}
  ~MpiGroup() {
    if (!process->given_up()) MPI_Comm_free(&comm);
  }
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  // How messages about a call begin.
  std::string what(const Call& call) const {
    return fmt::format("rank {}: {} in group '{}'", process->rank(), describe(call), members.name);
  }

  std::shared_ptr<MpiProcess> process;
  GroupMembers members;
  MPI_Comm comm;
  double timeout_seconds;
};

std::unique_ptr<GroupEnd> make_message_end(std::unique_ptr<MpiGroup> group);
// Collective over the group, whose members share a machine. `reads_peers`, the same on all: large parts are read from
// the others' memory if the kernel lets all members do it.
std::unique_ptr<GroupEnd> make_window_end(std::unique_ptr<MpiGroup> group, bool reads_peers);

}  // namespace strata

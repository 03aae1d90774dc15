// SPDX-License-Identifier: Apache-2.0
// Ranks as MPI processes. Groups on one machine exchange through a small shared window or read each other's memory,
// others through messages; memory stays constant either way. MPI is started with the first Comm unless it runs already,
// and finalised with the last one, when all ranks wait for each other. A Comm that an exception destroys, or that has
// given up waiting, does not wait: the process then ends the whole job when it exits. abort() prints the reason and
// ends the job at once.
#pragma once

#include <memory>

#include "strata/comm/comm.h"

namespace strata {

enum class MpiPath {
  kSharedWithinNode,  // what is fastest
  kStagedWithinNode,  // all through the window: where the kernel lets nobody read another process, and for tests
  kMessages,          // messages within a machine too, so that tests reach them
};

// Seconds that a call waits for the others before it gives up. Throws Error when MPI does not let several threads call
// it, or was finalised before.
std::unique_ptr<Comm> make_mpi_comm(double timeout_seconds);
std::unique_ptr<Comm> make_mpi_comm(double timeout_seconds, MpiPath path);

// Whether mpirun, mpiexec or srun started this process, by its environment; does not start MPI.
bool started_by_mpi();

}  // namespace strata

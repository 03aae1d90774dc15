// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/mpi/mpi_process.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "strata/base/error.h"

namespace strata {
namespace {

const char* level_name(int level) {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  if (level == MPI_THREAD_FUNNELED) return "MPI_THREAD_FUNNELED";
  return "MPI_THREAD_SERIALIZED";
}

// What runs at exit after this process gave up on the others: they are told instead of left waiting. The job has the
// exit code of this process; a rank that gave up and then ends as if all were well did not.
void end_job(int code, void*) { MPI_Abort(MPI_COMM_WORLD, code == 0 ? 1 : code); }

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw_failed_run("{} failed: {}", call, text);
}

std::shared_ptr<MpiProcess> MpiProcess::get() {
  static std::mutex mutex;
  static std::weak_ptr<MpiProcess> current;
  const std::lock_guard lock(mutex);
  std::shared_ptr<MpiProcess> process = current.lock();
  if (!process) current = process = std::shared_ptr<MpiProcess>(new MpiProcess);
  return process;
}

MpiProcess::MpiProcess() {
  int started = 0, ended = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (ended != 0)
    throw_failed_run("MPI has been finalised in this process and cannot start again: keep one Comm until the end");
  if (started == 0) {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    owns_mpi_ = true;
  }
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE) {
    if (owns_mpi_) MPI_Finalize();
    throw_failed_run(
        "MPI runs with {}, but several threads of Strata call it: use an MPI library built with MPI_THREAD_MULTIPLE, "
        "and let Strata start it",
        level_name(level));
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  find_nodes();
  polling_ = Polling(ranks_have_cores());
}

void MpiProcess::find_nodes() {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  int lowest = rank_;
  check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, node), "MPI_Bcast");
  nodes_.resize(static_cast<size_t>(size_));
  check_mpi(MPI_Allgather(&lowest, 1, MPI_INT, nodes_.data(), 1, MPI_INT, MPI_COMM_WORLD), "MPI_Allgather");
  MPI_Comm_free(&node);
}

int MpiProcess::ranks_on_node() const {
  return static_cast<int>(std::ranges::count(nodes_, nodes_[static_cast<size_t>(rank_)]));
}

bool MpiProcess::ranks_have_cores() const { return ranks_on_node() <= sysconf(_SC_NPROCESSORS_ONLN); }

void MpiProcess::give_up() {
  if (!given_up_.exchange(true)) ::on_exit(end_job, nullptr);  // glibc: std::atexit does not tell the code
}

MpiProcess::~MpiProcess() {
  if (owns_mpi_ && !given_up_) MPI_Finalize();
}

}  // namespace strata

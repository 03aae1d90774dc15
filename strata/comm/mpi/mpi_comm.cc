// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/mpi/mpi_comm.h"

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "strata/comm/grouped_comm.h"
#include "strata/comm/mpi/mpi_group.h"
#include "strata/comm/mpi/requests.h"
#include "strata/comm/self/self_end.h"

namespace strata {
namespace {

// The world's communicators of one Comm.
struct World {
  World() {
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &messages), "MPI_Comm_dup");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &making), "MPI_Comm_dup");
  }
  MPI_Comm messages = MPI_COMM_NULL;  // between two ranks; the tag is the lane
  MPI_Comm making = MPI_COMM_NULL;    // where members of a new group meet; the tag is the lane
};

class MpiComm : public GroupedComm {
 public:
  MpiComm(std::shared_ptr<MpiProcess> process, double timeout_seconds, MpiPath path)
      : GroupedComm(process->rank(), process->size()),
        process_(std::move(process)),
        timeout_seconds_(timeout_seconds),
        path_(path),
        exceptions_(std::uncaught_exceptions()) {
    for (int rank = 0; rank < size(); ++rank) ranks_.push_back(rank);
  }

  ~MpiComm() override {
    if (std::uncaught_exceptions() > exceptions_) process_->give_up();
    if (process_->given_up()) return;
    MPI_Comm_free(&world_.messages);
    MPI_Comm_free(&world_.making);
  }

  int ranks_on_node() const override { return process_->ranks_on_node(); }

  void abort(const std::string& reason) override {
    fmt::print(stderr, "strata: rank {} ended the run: {}\n", rank(), reason);
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);  // where MPI_Abort returns
  }

 protected:
  std::unique_ptr<GroupEnd> make_end(const GroupMembers& members) override {
    if (members.size() == 1) return std::make_unique<SelfEnd>();
    meet(members);
    auto group = std::make_unique<MpiGroup>(process_, members, make_communicator(members), timeout_seconds_);
    const std::vector<int>& nodes = process_->nodes();
    const auto is_here = [&](int rank) {
      return nodes[static_cast<size_t>(rank)] == nodes[static_cast<size_t>(this->rank())];
    };
    const bool shares = path_ != MpiPath::kMessages && std::ranges::all_of(members.ranks, is_here);
    if (!shares) return make_message_end(std::move(group));
    return make_window_end(std::move(group), path_ == MpiPath::kSharedWithinNode);
  }

  void send_bytes(int peer, int lane, std::span<const std::byte> bytes) override {
    Requests requests(*process_, world_.messages, ranks_, timeout_seconds_);
    const auto size = static_cast<int64_t>(bytes.size());
    requests.send(peer, lane, bytes.data(), size);
    requests.wait(fmt::format("rank {}: send of {} bytes on lane {}", rank(), size, lane));
  }

  void receive_bytes(int peer, int lane, std::span<std::byte> bytes) override {
    Requests requests(*process_, world_.messages, ranks_, timeout_seconds_);
    const auto size = static_cast<int64_t>(bytes.size());
    requests.receive(peer, lane, bytes.data(), size);
    requests.wait(fmt::format("rank {}: receive of {} bytes on lane {}", rank(), size, lane));
  }

  // abort() ends the process: there are no later calls.
  void throw_if_ended(const std::string&) const override {}

 private:
  // Waits until all members are here. Making a communicator blocks for ever when one is not.
  void meet(const GroupMembers& members) {
    Requests requests(*process_, world_.making, ranks_, timeout_seconds_);
    const std::string what = fmt::format("rank {}: making group '{}'", rank(), members.name);
    const int first = members.ranks[0];
    if (rank() == first) {
      for (const int other : members.ranks)
        if (other != first) requests.receive(other, members.lane, nullptr, 0);
      requests.wait(what);
      for (const int other : members.ranks)
        if (other != first) requests.send(other, members.lane, nullptr, 0);
    } else {
      requests.send(first, members.lane, nullptr, 0);
      requests.receive(first, members.lane, nullptr, 0);
    }
    requests.wait(what);
  }

  MPI_Comm make_communicator(const GroupMembers& members) const {
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_group(world_.making, &world), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(world, members.size(), members.ranks.data(), &group), "MPI_Group_incl");
    check_mpi(MPI_Comm_create_group(world_.making, group, members.lane, &comm), "MPI_Comm_create_group");
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return comm;
  }

  std::shared_ptr<MpiProcess> process_;
  double timeout_seconds_;
  MpiPath path_;
  int exceptions_;  // under way when this was made
  World world_;
  std::vector<int> ranks_;
};

}  // namespace

std::unique_ptr<Comm> make_mpi_comm(double timeout_seconds) {
  return make_mpi_comm(timeout_seconds, MpiPath::kSharedWithinNode);
}

std::unique_ptr<Comm> make_mpi_comm(double timeout_seconds, MpiPath path) {
  return std::make_unique<MpiComm>(MpiProcess::get(), timeout_seconds, path);
}

bool started_by_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"})
    if (std::getenv(name) != nullptr) return true;
  const char* const tasks = std::getenv("SLURM_STEP_NUM_TASKS");  // of srun; a batch script has SLURM_NTASKS
  return tasks != nullptr && std::atoi(tasks) > 1;
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// One rank of several does what its argument says, while the others wait for it in a collective: faults PATH WHAT.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <thread>
#include <vector>

#include "strata/comm/mpi/mpi_comm.h"

namespace strata {
namespace {

constexpr double kPatient = 60;

Group world_of(Comm& comm) {
  std::vector<int> ranks(static_cast<size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return comm.group("world", ranks, 0);
}

void reduce(Comm& comm, const Group& world, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  comm.all_reduce(world, DType::kF32, reinterpret_cast<std::byte*>(values.data()), elements);
}

void run(MpiPath path, std::string_view what) {
  const bool waits_briefly = what == "absent" || what == "no-receiver" || what == "no-group";
  const std::unique_ptr<Comm> comm = make_mpi_comm(waits_briefly ? 0.5 : kPatient, path);
  const bool faulty = comm->rank() == 1;
  if (what == "no-group") {
    if (!faulty) world_of(*comm);
    return std::this_thread::sleep_for(std::chrono::seconds(5));
  }
  const Group world = world_of(*comm);
  reduce(*comm, world, 100'000);
  if (what == "throw" && faulty) throw_failed_run("the disk is full");
  if (what == "kill" && faulty) ::kill(::getpid(), SIGKILL);
  if (what == "terminate" && faulty) std::terminate();
  if (what == "abort" && faulty) comm->abort("the disk is full");
  if (what == "absent" && faulty) return std::this_thread::sleep_for(std::chrono::seconds(5));
  if (what == "sizes") reduce(*comm, world, faulty ? 100'000 : 100'004);
  if (what == "no-receiver" && !faulty) {
    std::byte bytes[8] = {};
    comm->receive(1, 3, bytes);
  }
  if (what == "no-receiver") return std::this_thread::sleep_for(std::chrono::seconds(5));
  if (what == "message-sizes") {
    std::byte bytes[16] = {};
    if (faulty) return comm->send(0, 3, std::span(bytes).first(8));
    if (comm->rank() == 0) comm->receive(1, 3, bytes);
    return;
  }
  reduce(*comm, world, 100'000);
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const bool shared = std::string_view(argv[1]) == "shared";
    strata::run(shared ? strata::MpiPath::kSharedWithinNode : strata::MpiPath::kMessages, argv[2]);
  } catch (const strata::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

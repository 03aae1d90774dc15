// SPDX-License-Identifier: Apache-2.0
// One rank of several does what its argument says, while the others wait for it in a collective: faults PATH WHAT.
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <thread>
#include <vector>

#include "strata/comm/mpi/mpi_comm.h"
#include "strata/device/arena.h"

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

// The faulty one gives everybody a byte more than they expect.
void give_parts(Comm& comm, const Group& world, bool faulty) {
  std::byte given[9] = {}, received[9] = {};
  const auto members = static_cast<size_t>(comm.size());
  std::vector<std::span<const std::byte>> send(members, std::span(given).first(faulty ? 9 : 8));
  send[static_cast<size_t>(comm.rank())] = std::span(given).first(8);
  const std::vector<std::span<std::byte>> receive(members, std::span(received).first(8));
  comm.all_to_all(world, send, receive);
}

// Every member gives a MiB; that of the faulty one cannot be read.
void gather_unreadable(Comm& comm, const Group& world, bool faulty) {
  constexpr int64_t kPart = 1 << 20;
  const int64_t bytes = kPart * comm.size();
  const Arena values(bytes);
  if (faulty) ::mprotect(values.base() + kPart * comm.rank(), kPart, PROT_NONE);
  comm.all_gather(world, DType::kU8, values.base(), bytes);
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
  if (what == "parts") give_parts(*comm, world, faulty);
  if (what == "unreadable") gather_unreadable(*comm, world, faulty);
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

// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/mpi/window.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "strata/comm/mpi/peer_memory.h"

namespace strata {
namespace {

constexpr int64_t kAreaBytes = static_cast<int64_t>(sizeof(WindowHeader)) + 2 * kBlockBytes;

// Libraries align an area to less. Every process maps it at a page, so that all find the same place.
std::byte* aligned(void* area) {
  const auto address = reinterpret_cast<uintptr_t>(area);
  return static_cast<std::byte*>(area) + (kWindowAlignment - address % kWindowAlignment) % kWindowAlignment;
}

}  // namespace

Window::Window(const MpiGroup& group)
    : process_(group.process),
      comm_(group.comm),
      token_(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())) {
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "MPI_Info_create");
  MPI_Info_set(info, "alloc_shared_noncontig", "true");  // an area starts on a page of its own
  void* own = nullptr;
  check_mpi(MPI_Win_allocate_shared(kAreaBytes + kWindowAlignment, 1, info, group.comm, &own, &window_),
            "MPI_Win_allocate_shared");
  MPI_Info_free(&info);
  check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all");
  for (int member = 0; member < group.members.size(); ++member) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* area = nullptr;
    check_mpi(MPI_Win_shared_query(window_, member, &bytes, &unit, &area), "MPI_Win_shared_query");
    areas_.push_back(aligned(area));
  }
  WindowHeader& header = *new (aligned(own)) WindowHeader{};
  header.process = ::getpid();
  header.token_place = &token_;
  header.token = token_;
  let_siblings_read();
  check_mpi(MPI_Barrier(group.comm), "MPI_Barrier");
}

Window::~Window() {
  if (process_->given_up()) return;
  MPI_Win_unlock_all(window_);
  MPI_Win_free(&window_);
}

bool Window::members_read_each_other() const {
  const auto can_read = [this](int member) {
    const WindowHeader& of = header(member);
    uint64_t token = 0;
    return read_peer(of.process, reinterpret_cast<const std::byte*>(of.token_place),
                     reinterpret_cast<std::byte*>(&token), sizeof token) &&
           token == of.token;
  };
  int can = has_large_pages() ? 1 : 0;
  for (int member = 0; member < std::ssize(areas_); ++member) can = can != 0 && can_read(member) ? 1 : 0;
  int all_can = 0;
  check_mpi(MPI_Allreduce(&can, &all_can, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
  return all_can != 0;
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// Memory that all members of a group on one machine map: of each member a header and two blocks, which it alone writes.
// Constant: a MiB per member, whatever is exchanged. Made and freed by all members together.
#pragma once

#include <sys/types.h>

#include <vector>

#include "strata/comm/mpi/mpi_group.h"
#include "strata/comm/mpi/shared_counter.h"

namespace strata {

inline constexpr int64_t kBlockBytes = 512 << 10;
inline constexpr int64_t kWindowAlignment = 64;

struct alignas(kWindowAlignment) WindowHeader {
  SharedCounter filled;        // blocks since the group was made
  Call calls[2];               // the call that each block is part of
  const std::byte* values[2];  // where a call that stages nothing has its values, in the member's own memory
  pid_t process;
  const uint64_t* token_place;  // in the member's own memory, to prove that `process` names it
  uint64_t token;
};
static_assert(sizeof(WindowHeader) % kWindowAlignment == 0);

class Window {
 public:
  explicit Window(const MpiGroup& group);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  WindowHeader& header(int member) const {
    return *reinterpret_cast<WindowHeader*>(areas_[static_cast<size_t>(member)]);
  }
  // The blocks take turns; the odd one follows the even one.
  std::byte* block(int member, int64_t step) const {
    return areas_[static_cast<size_t>(member)] + sizeof(WindowHeader) + step % 2 * kBlockBytes;
  }

  // Called by all members: whether the kernel lets each of them read every other's memory, and it is worth while.
  bool members_read_each_other() const;

 private:
  std::shared_ptr<MpiProcess> process_;
  MPI_Comm comm_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::byte*> areas_;
  uint64_t token_;
};

}  // namespace strata

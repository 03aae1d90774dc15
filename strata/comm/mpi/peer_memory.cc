// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/mpi/peer_memory.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

namespace strata {

// Refused where no security module asks for it: then there is nothing to allow.
void let_siblings_read() { ::prctl(PR_SET_PTRACER, static_cast<unsigned long>(::getppid()), 0, 0, 0); }

bool read_peer(pid_t peer, const std::byte* from, std::byte* to, int64_t num_bytes) {
  for (int64_t done = 0; done < num_bytes;) {
    const iovec local = {to + done, static_cast<size_t>(num_bytes - done)};
    const iovec remote = {const_cast<std::byte*>(from) + done, local.iov_len};
    const ssize_t read = ::process_vm_readv(peer, &local, 1, &remote, 1, 0);
    if (read < 0 && errno == EINTR) continue;
    if (read == 0) errno = EFAULT;
    if (read <= 0) return false;
    done += read;  // at most 2 GiB at a time, and less where a page is missing: the next call tells
  }
  return true;
}

bool has_large_pages(const std::filesystem::path& root) {
  std::ifstream file(root / "sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  return std::getline(file, line) && line.find("[never]") == std::string::npos;
}

}  // namespace strata

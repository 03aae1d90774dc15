// SPDX-License-Identifier: Apache-2.0
// Memory of another process of this machine, which the kernel copies straight to where it is wanted: one pass, and no
// page of it is mapped here. The kernel may refuse: to other users, in other containers, or under a security module.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace strata {

// Lets the processes that this one's parent started read its memory, where the kernel lets only those that are told.
void let_siblings_read();

// Whether all bytes were read; otherwise errno tells why not.
bool read_peer(pid_t peer, const std::byte* from, std::byte* to, int64_t num_bytes);

// Whether memory that asks for large pages may get them. The kernel looks up every page that it copies: small ones cost
// more than a copy by way of shared memory. `root` stands before /sys.
bool has_large_pages(const std::filesystem::path& root = "/");

}  // namespace strata

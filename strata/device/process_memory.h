// SPDX-License-Identifier: Apache-2.0
// What this process holds in memory right now, as the kernel counts it (/proc/self/status). Safe from any thread.
#pragma once

#include <cstdint>

namespace strata {

struct ProcessMemory {
  int64_t anonymous_bytes = 0;      // RssAnon: private pages, without mapped files
  int64_t shared_bytes = 0;         // RssShmem: shared memory
  int64_t peak_resident_bytes = 0;  // VmHWM: the most ever resident, mapped files included
  // What a plan promises to bound.
  int64_t resident_bytes() const { return anonymous_bytes + shared_bytes; }
};

ProcessMemory read_process_memory();

}  // namespace strata

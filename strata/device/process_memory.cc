// SPDX-License-Identifier: Apache-2.0
#include "strata/device/process_memory.h"

#include <fstream>
#include <string>

#include "strata/base/error.h"

namespace strata {

ProcessMemory read_process_memory() {
  ProcessMemory memory;
  int found = 0;
  std::ifstream file("/proc/self/status");
  const auto take = [&](int64_t& bytes) {
    int64_t kib = 0;
    if (file >> kib) ++found;
    bytes = kib * 1024;
  };
  for (std::string word; file >> word;) {
    if (word == "RssAnon:") take(memory.anonymous_bytes);
    if (word == "RssShmem:") take(memory.shared_bytes);
    if (word == "VmHWM:") take(memory.peak_resident_bytes);
  }
  if (found != 3)
    throw_failed_run("/proc/self/status has {} of RssAnon, RssShmem and VmHWM: Linux 4.5 or later is needed", found);
  return memory;
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/device/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "strata/base/error.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number behind `key` (on a line "key 123" or "key: 123 kB"), -1 without.
int64_t number_after(const std::filesystem::path& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    int64_t number = 0;
    if (words >> name >> number && name == key) return number;
  }
  return -1;
}

// The only number of a file; -1 when it is missing or holds a word ("max").
int64_t number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : -1;
}

// The file names differ between the two versions of control groups.
struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // key in memory.stat: cached file pages that count as usage
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

int64_t left_in_group(const std::filesystem::path& group, const GroupFiles& files) {
  const int64_t limit = number_in(group / files.limit);
  const int64_t usage = number_in(group / files.usage);
  if (limit < 0 || usage < 0) return kUnlimited;
  const int64_t reclaimable = std::max<int64_t>(0, number_after(group / "memory.stat", files.reclaimable));
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, usage - reclaimable));
}

// The least that a group or one above it leaves. `relative` is the group's path below `mount`.
int64_t left_in_groups(const std::filesystem::path& mount, std::filesystem::path relative, const GroupFiles& files) {
  int64_t left = left_in_group(mount, files);
  for (; !relative.empty(); relative = relative.parent_path())
    left = std::min(left, left_in_group(mount / relative, files));
  return left;
}

// Lines of /proc/self/cgroup: "0::/path" (version 2), "4:memory:/path" (version 1).
int64_t left_in_control_groups(const std::filesystem::path& root) {
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  std::ifstream file(root / "proc/self/cgroup");
  int64_t left = kUnlimited;
  for (std::string line; std::getline(file, line);) {
    const size_t controllers = line.find(':');
    const size_t path = line.find(":/");
    if (controllers == std::string::npos || path == std::string::npos) continue;
    const std::string relative = line.substr(path + 2);
    if (line.starts_with("0::")) left = std::min(left, left_in_groups(mount, relative, kVersion2));
    if (line.substr(controllers, path - controllers) == ":memory")
      left = std::min(left, left_in_groups(mount / "memory", relative, kVersion1));
  }
  return left;
}

}  // namespace

Arena::Arena(int64_t bytes) : size_bytes_(bytes) {
  STRATA_CHECK(bytes >= 0, "an arena of {} bytes", bytes);
  if (bytes == 0) return;
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    const std::string reason = std::generic_category().message(errno);
    throw_failed_run("cannot map {} bytes ({}): {}; {} are available: use a plan that needs less, or raise the limit",
                     bytes, format_bytes(bytes), reason, format_bytes(available_memory_bytes()));
  }
  // Fewer misses in address translation; without large pages in the system it changes nothing, so a refusal is ignored.
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  base_ = static_cast<std::byte*>(memory);
}

Arena::~Arena() {
  if (base_ != nullptr) ::munmap(base_, static_cast<size_t>(size_bytes_));
}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

int64_t available_memory_bytes(const std::filesystem::path& root) {
  const int64_t kib = number_after(root / "proc/meminfo", "MemAvailable:");
  const int64_t machine = kib < 0 ? kUnlimited : kib * 1024;
  const int64_t available = std::min(machine, left_in_control_groups(root));
  if (available == kUnlimited)
    throw_failed_run("cannot tell how much memory is available: {} has no MemAvailable",
                     (root / "proc/meminfo").string());
  return available;
}

}  // namespace strata

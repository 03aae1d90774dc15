// SPDX-License-Identifier: Apache-2.0
// The memory of one tier: one anonymous mapping, made once, in which every booking has its place. Page-aligned and
// zero. Pages cost nothing until they are touched, so an arena may be mapped before it is known to fit; whoever sizes
// it compares with available_memory_bytes(). Owns the mapping; moving keeps the address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <utility>

namespace strata {

class Arena {
 public:
  // Throws Error (failed run) with the bytes asked for and those available when the mapping is refused.
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Arena& operator=(Arena&& other) noexcept;

  std::byte* base() const { return base_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* base_ = nullptr;
  int64_t size_bytes_ = 0;
};

// What this process may still touch without swapping or being killed: MemAvailable of /proc/meminfo, or what the limits
// of its control groups leave, whichever is less. `root` stands before /proc and /sys.
int64_t available_memory_bytes(const std::filesystem::path& root = "/");

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// Hands out pieces of the caller's scratch, each on a cache line. Whoever estimates adds round_to_line() of every
// piece and one kScratchLine for the start. Running out is a bug: the estimate did not match the use.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "strata/base/error.h"

namespace strata::kernels {

constexpr int64_t kScratchLine = 64;

constexpr int64_t round_to_line(int64_t bytes) { return (bytes + kScratchLine - 1) / kScratchLine * kScratchLine; }

class Scratch {
 public:
  explicit Scratch(std::span<std::byte> memory) {
    void* start = memory.data();
    size_t size = memory.size();
    if (std::align(kScratchLine, 0, start, size) != nullptr) rest_ = {static_cast<std::byte*>(start), size};
  }

  template <typename T>
  T* take(int64_t count) {
    return reinterpret_cast<T*>(take_bytes(count * static_cast<int64_t>(sizeof(T))).data());
  }

  std::span<std::byte> take_bytes(int64_t bytes) {
    const size_t size = static_cast<size_t>(round_to_line(bytes));
    STRATA_CHECK(size <= rest_.size(), "scratch needs {} more bytes, {} are left", size, rest_.size());
    const std::span<std::byte> piece = rest_.first(size);
    rest_ = rest_.subspan(size);
    return piece;
  }

  std::span<std::byte> rest() const { return rest_; }

 private:
  std::span<std::byte> rest_;
};

}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
// The checksum of every Strata file format and fingerprint: 64-bit xxh3, streaming. Equal for any split of the same
// bytes. A value type; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace strata {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  uint64_t digest() const;  // of everything so far; may be continued

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t checksum_of(std::span<const std::byte> bytes);
// Sixteen lower-case hexadecimal digits.
std::string checksum_hex(uint64_t digest);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/base/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace strata {

struct Checksum::State {
  State() : xxh3(XXH3_createState()) { XXH3_64bits_reset(xxh3); }
  ~State() { XXH3_freeState(xxh3); }
  XXH3_state_t* xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh3, bytes.data(), bytes.size());
}

uint64_t Checksum::digest() const { return XXH3_64bits_digest(state_->xxh3); }

uint64_t checksum_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string checksum_hex(uint64_t digest) { return fmt::format("{:016x}", digest); }

}  // namespace strata

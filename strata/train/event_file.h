// SPDX-License-Identifier: Apache-2.0
// The bytes of a TensorBoard event file: a sequence of framed records (TFRecord: length, masked CRC-32C of it, data,
// masked CRC-32C of the data; little-endian), each one an Event message (protocol buffers). Only what Strata writes is
// encoded: the version record, a session start, scalars. Pure functions; docs/log.md has the layout.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// CRC with the Castagnoli polynomial, reflected.
uint32_t crc32c(std::string_view bytes);

struct Scalar {
  std::string_view tag;
  double value = 0;
};

// Framed records. Times are seconds since 1970.
std::string version_record(double wall_time);
// Tells readers to forget what they saw at `step` and later.
std::string session_start_record(double wall_time, int64_t step);
std::string scalars_record(double wall_time, int64_t step, const std::vector<Scalar>& scalars);

// Length of the longest beginning of `contents` that consists of whole, undamaged records with steps up to `last_step`.
size_t bytes_up_to_step(std::string_view contents, int64_t last_step);

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/event_file.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
    table[byte] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

// TFRecord stores checksums rotated and shifted, so that a checksum of data with checksums inside stays useful.
uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

template <typename T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T raw_at(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// ---- protocol buffers -----------------------------------------------------------------------------------------------
// A field is a key (number * 8 + wire type) and a value: varint, 8 bytes, length and bytes, or 4 bytes.
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Event: wall_time 1 (double), step 2 (int64), file_version 3 (string), summary 5, session_log 7.
// Summary: value 1, with tag 1 (string) and simple_value 2 (float). SessionLog: status 1, START = 1.
constexpr uint64_t kStepField = 2;

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  out += static_cast<char>(value);
}
void append_key(std::string& out, uint64_t field, WireType type) { append_varint(out, field << 3 | type); }
void append_integer(std::string& out, uint64_t field, int64_t value) {
  append_key(out, field, kVarint);
  append_varint(out, static_cast<uint64_t>(value));
}
void append_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  append_key(out, field, kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

// An Event up to its step.
std::string event(double wall_time, int64_t step) {
  std::string out;
  append_key(out, 1, kFixed64);
  append_raw(out, wall_time);
  append_integer(out, kStepField, step);
  return out;
}

constexpr size_t kHeadBytes = sizeof(uint64_t) + sizeof(uint32_t);

std::string framed(std::string_view data) {
  std::string record;
  append_raw(record, static_cast<uint64_t>(data.size()));
  append_raw(record, masked_crc(record));
  record += data;
  append_raw(record, masked_crc(data));
  return record;
}

// The data of the record at the beginning of `contents`; nothing when it is cut short or damaged.
std::optional<std::string_view> first_record(std::string_view contents) {
  if (contents.size() < kHeadBytes) return std::nullopt;
  if (raw_at<uint32_t>(contents, 8) != masked_crc(contents.substr(0, 8))) return std::nullopt;
  const auto length = raw_at<uint64_t>(contents, 0);
  if (contents.size() - kHeadBytes < sizeof(uint32_t) || length > contents.size() - kHeadBytes - sizeof(uint32_t))
    return std::nullopt;
  const std::string_view data = contents.substr(kHeadBytes, length);
  if (raw_at<uint32_t>(contents, kHeadBytes + length) != masked_crc(data)) return std::nullopt;
  return data;
}

std::optional<uint64_t> take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
  return std::nullopt;
}

// Skips the value of a field; false when the message ends inside it.
bool skip_value(std::string_view& bytes, uint64_t type) {
  std::optional<uint64_t> length;
  if (type == kVarint) return take_varint(bytes).has_value();
  if (type == kFixed64) length = 8;
  if (type == kFixed32) length = 4;
  if (type == kBytes) length = take_varint(bytes);
  if (!length || *length > bytes.size()) return false;
  bytes.remove_prefix(*length);
  return true;
}

// An absent step is 0; nothing when `event` is no message.
std::optional<int64_t> step_of(std::string_view event) {
  int64_t step = 0;
  while (!event.empty()) {
    const std::optional<uint64_t> key = take_varint(event);
    if (!key) return std::nullopt;
    if (*key == (kStepField << 3 | kVarint)) {
      const std::optional<uint64_t> value = take_varint(event);
      if (!value) return std::nullopt;
      step = static_cast<int64_t>(*value);
    } else if (!skip_value(event, *key & 7)) {
      return std::nullopt;
    }
  }
  return step;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 255];
  return ~crc;
}

std::string version_record(double wall_time) {
  std::string out = event(wall_time, 0);
  append_bytes(out, 3, "brain.Event:2");
  return framed(out);
}

std::string session_start_record(double wall_time, int64_t step) {
  std::string session;
  append_integer(session, 1, 1);
  std::string out = event(wall_time, step);
  append_bytes(out, 7, session);
  return framed(out);
}

std::string scalars_record(double wall_time, int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    append_bytes(value, 1, scalar.tag);
    append_key(value, 2, kFixed32);
    append_raw(value, static_cast<float>(scalar.value));
    append_bytes(summary, 1, value);
  }
  std::string out = event(wall_time, step);
  append_bytes(out, 5, summary);
  return framed(out);
}

size_t bytes_up_to_step(std::string_view contents, int64_t last_step) {
  size_t kept = 0;
  while (const std::optional<std::string_view> data = first_record(contents.substr(kept))) {
    const std::optional<int64_t> step = step_of(*data);
    if (!step || *step > last_step) break;
    kept += kHeadBytes + data->size() + sizeof(uint32_t);
  }
  return kept;
}

}  // namespace strata

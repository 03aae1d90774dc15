// SPDX-License-Identifier: Apache-2.0
// One file as memory of the disk tier: bookings are read and written at their offsets, whole or not at all as far as
// the caller can tell. Not buffered: what is written is in the system's page cache, and on the disk after sync().
// Several threads may read and write different ranges at once. Failures are Errors (failed run; a wrong path is bad
// input) that name the path, the bytes and, on a full disk, what is free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "strata/base/file.h"

namespace strata {

class DiskFile {
 public:
  // A new, empty file; an old one of that name is emptied.
  static DiskFile create(const std::filesystem::path& path);
  // An existing file, for reading.
  static DiskFile open(const std::filesystem::path& path);

  void write(int64_t offset, std::span<const std::byte> bytes);
  void read(int64_t offset, std::span<std::byte> bytes) const;
  void sync();

  int64_t size_bytes() const { return file_size(file_, path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  DiskFile(FileDescriptor file, std::filesystem::path path) : file_(std::move(file)), path_(std::move(path)) {}

  FileDescriptor file_;
  std::filesystem::path path_;
};

}  // namespace strata

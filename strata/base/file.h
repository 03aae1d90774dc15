// SPDX-License-Identifier: Apache-2.0
// Small pieces under every reader and writer of files: an owned descriptor, one message for a failed system call,
// a read-only mapping, free space. Errors name the file and the operating system's reason: bad input when the path
// itself is wrong (missing, no permission, a folder), failed run for everything else (disk full, I/O error).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace strata {

// "cannot <action> <path>: <reason>".
[[noreturn]] void throw_file_error(std::string_view action, const std::filesystem::path& path, int error_number);

// Owns an open descriptor; -1: none. Closing errors are ignored: whoever needs the data on disk calls sync_file first.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return descriptor_; }
  void reset();

 private:
  int descriptor_ = -1;
};

FileDescriptor open_for_reading(const std::filesystem::path& path);
// Size of an open regular file; refuses folders and devices.
int64_t file_size(const FileDescriptor& file, const std::filesystem::path& path);
// At most `bytes` from the current position; 0 at the end.
int64_t read_some(const FileDescriptor& file, const std::filesystem::path& path, std::byte* out, int64_t bytes);
// Contents of a small file (configuration, JSON).
std::string read_text_file(const std::filesystem::path& path);
// Contents, or the entries of a folder, are on disk when this returns.
void sync_path(const std::filesystem::path& path);

// Bytes an unprivileged process may still write to the file system that holds `folder`.
int64_t free_disk_bytes(const std::filesystem::path& folder);

// A file's bytes in memory, read-only, paged in on use. Moving keeps the address. The file must not shrink meanwhile.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace strata

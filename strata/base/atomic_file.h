// SPDX-License-Identifier: Apache-2.0
// Files and folders that appear complete or not at all. AtomicFile writes to a temporary beside its target and commit()
// makes it durable (fsync) and renames it over the target; AtomicFolder does the same for a folder. Without commit()
// the temporary is removed. A killed process may leave a "<name>.tmp-<pid>-<n>" behind, never a partial target. One
// owner, one thread at a time. Nothing is buffered: write large pieces. Errors name the target, bytes and reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "strata/base/file.h"

namespace strata {

class AtomicFile {
 public:
  // The folder of `target` must exist; an existing target stays as it is until commit().
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  // Appends after the last byte written by write().
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // Writes at an offset, leaving the place of write() alone.
  void pwrite(std::span<const std::byte> bytes, int64_t offset);
  int64_t size_bytes() const { return size_bytes_; }  // appended so far
  const std::filesystem::path& target() const { return target_; }

  // After this the target is complete and durable. Call once.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty: committed or moved from
  FileDescriptor file_;
  int64_t size_bytes_ = 0;
};

void write_file_atomically(const std::filesystem::path& target, std::string_view contents);

enum class ExistingTarget { kRefuse, kReplace };

class AtomicFolder {
 public:
  // Creates the temporary folder beside `target`, whose parent must exist. kRefuse: a target that exists is bad input;
  // kReplace: it is exchanged at commit() and then removed.
  AtomicFolder(std::filesystem::path target, ExistingTarget existing);
  // The same with a temporary of a name that other processes know, so that they can write into it. One that exists is
  // what a killed process left: it is emptied.
  AtomicFolder(std::filesystem::path target, std::filesystem::path temporary, ExistingTarget existing);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // Where to write until commit().
  const std::filesystem::path& folder() const { return temporary_; }
  const std::filesystem::path& target() const { return target_; }

  // Flushes every file and folder inside, then renames. Call once.
  void commit();

 private:
  void refuse_existing() const;

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // what the destructor removes
  ExistingTarget existing_;
  bool committed_ = false;
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/base/atomic_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "strata/base/error.h"

namespace strata {
namespace {

constexpr int64_t kLargestWrite = int64_t{1} << 30;  // the kernel writes less than 2 GiB per call

// "a/b/" names the same target as "a/b".
std::filesystem::path without_trailing_slash(std::filesystem::path path) {
  return path.has_filename() ? path : path.parent_path();
}

std::filesystem::path parent_folder(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// The first free "<target>.tmp-<pid>-<n>"; `create` returns false with errno set.
template <typename Create>
std::filesystem::path create_temporary(const std::filesystem::path& target, Create&& create) {
  for (int attempt = 0;; ++attempt) {
    const std::filesystem::path temporary = fmt::format("{}.tmp-{}-{}", target.string(), ::getpid(), attempt);
    if (create(temporary)) return temporary;
    if (errno != EEXIST) throw_file_error("create", target, errno);
  }
}

[[noreturn]] void throw_write_error(const std::filesystem::path& target, int64_t bytes, int64_t offset,
                                    int error_number) {
  const std::string reason = std::generic_category().message(error_number);
  if (error_number != ENOSPC && error_number != EDQUOT)
    throw_failed_run("cannot write {} bytes at offset {} of {}: {}", bytes, offset, target.string(), reason);
  throw_failed_run(
      "cannot write {} bytes at offset {} of {}: {} ({} bytes free): free some space or choose another folder", bytes,
      offset, target.string(), reason, free_disk_bytes(parent_folder(target)));
}

void sync_tree(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::end(entry); entry.increment(error)) sync_path(entry->path());
  if (error) throw_file_error("list", folder, error.value());
  sync_path(folder);
}

void exchange_paths(const std::filesystem::path& temporary, const std::filesystem::path& target) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return;
  const int error_number = errno;
  throw_failed_run("cannot replace {}: {}; where the file system cannot exchange folders, remove it first",
                   target.string(), std::generic_category().message(error_number));
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  std::error_code ignored;
  if (std::filesystem::is_directory(target_, ignored)) throw_file_error("replace", target_, EISDIR);
  temporary_ = create_temporary(target_, [this](const std::filesystem::path& temporary) {
    file_ = FileDescriptor(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    return file_.get() >= 0;
  });
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)),
      size_bytes_(other.size_bytes_) {}

void AtomicFile::write(std::span<const std::byte> bytes) {
  pwrite(bytes, size_bytes_);
  size_bytes_ += static_cast<int64_t>(bytes.size());
}

void AtomicFile::pwrite(std::span<const std::byte> bytes, int64_t offset) {
  STRATA_CHECK(!temporary_.empty(), "{} is already committed", target_.string());
  while (!bytes.empty()) {
    const int64_t wanted = std::min(static_cast<int64_t>(bytes.size()), kLargestWrite);
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), static_cast<size_t>(wanted), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_write_error(target_, wanted, offset, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

void AtomicFile::commit() {
  STRATA_CHECK(!temporary_.empty(), "{} is already committed", target_.string());
  if (::fsync(file_.get()) != 0) throw_file_error("flush", target_, errno);
  file_.reset();
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw_file_error("replace", target_, errno);
  temporary_.clear();
  sync_path(parent_folder(target_));
}

void write_file_atomically(const std::filesystem::path& target, std::string_view contents) {
  AtomicFile file(target);
  file.write(contents);
  file.commit();
}

AtomicFolder::AtomicFolder(std::filesystem::path target, ExistingTarget existing)
    : target_(without_trailing_slash(std::move(target))), existing_(existing) {
  refuse_existing();
  temporary_ = create_temporary(
      target_, [](const std::filesystem::path& temporary) { return ::mkdir(temporary.c_str(), 0777) == 0; });
}

AtomicFolder::AtomicFolder(std::filesystem::path target, std::filesystem::path temporary, ExistingTarget existing)
    : target_(without_trailing_slash(std::move(target))), existing_(existing) {
  refuse_existing();
  std::error_code error;
  std::filesystem::remove_all(temporary, error);
  if (error) throw_file_error("remove", temporary, error.value());
  if (::mkdir(temporary.c_str(), 0777) != 0) throw_file_error("create", target_, errno);
  temporary_ = std::move(temporary);
}

void AtomicFolder::refuse_existing() const {
  std::error_code ignored;
  if (existing_ == ExistingTarget::kRefuse && std::filesystem::exists(target_, ignored))
    throw_bad_input("{} already exists: choose another folder or remove it", target_.string());
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  STRATA_CHECK(!committed_, "{} is already committed", target_.string());
  sync_tree(temporary_);
  if (::rename(temporary_.c_str(), target_.c_str()) == 0) {
    temporary_.clear();
  } else {
    if (existing_ == ExistingTarget::kRefuse) throw_file_error("rename the finished folder to", target_, errno);
    exchange_paths(temporary_, target_);  // the temporary name now holds the old target; the destructor removes it
  }
  committed_ = true;
  sync_path(parent_folder(target_));
}

}  // namespace strata

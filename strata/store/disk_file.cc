// SPDX-License-Identifier: Apache-2.0
#include "strata/store/disk_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "strata/base/error.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr size_t kLargestTransfer = size_t{1} << 30;  // the kernel moves less than 2 GiB per call

[[noreturn]] void throw_write_error(const std::filesystem::path& path, size_t bytes, int64_t offset, int error_number) {
  const std::string reason = std::generic_category().message(error_number);
  if (error_number != ENOSPC && error_number != EDQUOT && error_number != EFBIG)
    throw_failed_run("cannot write {} bytes at offset {} of {}: {}", bytes, offset, path.string(), reason);
  throw_failed_run(
      "cannot write {} bytes at offset {} of {}: {} ({} free): free some space, raise the limit, or choose another "
      "folder",
      bytes, offset, path.string(), reason,
      format_bytes(free_disk_bytes(path.parent_path().empty() ? "." : path.parent_path())));
}

}  // namespace

DiskFile DiskFile::create(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) throw_file_error("create", path, errno);
  return {std::move(file), path};
}

DiskFile DiskFile::open(const std::filesystem::path& path) { return {open_for_reading(path), path}; }

void DiskFile::write(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), std::min(bytes.size(), kLargestTransfer), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_write_error(path_, bytes.size(), offset, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

void DiskFile::read(int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(file_.get(), bytes.data(), std::min(bytes.size(), kLargestTransfer), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      throw_failed_run("cannot read {} bytes at offset {} of {}: {}", bytes.size(), offset, path_.string(),
                       std::generic_category().message(errno));
    if (count == 0)
      throw_failed_run("cannot read {} bytes at offset {} of {}: it ends there", bytes.size(), offset, path_.string());
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

void DiskFile::sync() {
  if (::fsync(file_.get()) != 0) throw_file_error("flush", path_, errno);
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "strata/base/error.h"

namespace strata {
namespace {

bool path_is_wrong(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENAMETOOLONG:
    case ELOOP: return true;
    default: return false;
  }
}

}  // namespace

void throw_file_error(std::string_view action, const std::filesystem::path& path, int error_number) {
  const ErrorKind kind = path_is_wrong(error_number) ? ErrorKind::kBadInput : ErrorKind::kFailedRun;
  throw Error(kind,
              fmt::format("cannot {} {}: {}", action, path.string(), std::generic_category().message(error_number)));
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

void FileDescriptor::reset() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

FileDescriptor open_for_reading(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw_file_error("open", path, errno);
  return FileDescriptor(descriptor);
}

int64_t file_size(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) throw_file_error("read the size of", path, errno);
  if (!S_ISREG(status.st_mode)) throw_bad_input("{} is not a regular file", path.string());
  return status.st_size;
}

int64_t read_some(const FileDescriptor& file, const std::filesystem::path& path, std::byte* out, int64_t bytes) {
  for (;;) {
    const ssize_t count = ::read(file.get(), out, static_cast<size_t>(bytes));
    if (count >= 0) return count;
    if (errno != EINTR) throw_file_error("read", path, errno);
  }
}

std::string read_text_file(const std::filesystem::path& path) {
  const FileDescriptor file = open_for_reading(path);
  std::string text(static_cast<size_t>(file_size(file, path)), '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const int64_t count = read_some(file, path, reinterpret_cast<std::byte*>(text.data()) + filled,
                                    static_cast<int64_t>(text.size() - filled));
    if (count == 0)
      throw_failed_run("{} shrank to {} of {} bytes while it was read", path.string(), filled, text.size());
    filled += static_cast<size_t>(count);
  }
  return text;
}

void sync_path(const std::filesystem::path& path) {
  const FileDescriptor file = open_for_reading(path);
  if (::fsync(file.get()) != 0) throw_file_error("flush", path, errno);
}

int64_t free_disk_bytes(const std::filesystem::path& folder) {
  struct statvfs status = {};
  if (::statvfs(folder.c_str(), &status) != 0) throw_file_error("read the free space of", folder, errno);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const FileDescriptor file = open_for_reading(path);
  const auto size = static_cast<size_t>(file_size(file, path));
  if (size == 0) return;
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) throw_file_error("map", path, errno);
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace strata

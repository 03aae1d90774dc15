// SPDX-License-Identifier: Apache-2.0
#include "strata/base/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace strata {

AppendFile::AppendFile(std::filesystem::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (file_.get() < 0) throw_file_error("open", path_, errno);
}

void AppendFile::append(std::string_view record) {
  while (!record.empty()) {
    const ssize_t written = ::write(file_.get(), record.data(), record.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_file_error("append to", path_, errno);
    record.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// A file that grows by whole records and may be read by others meanwhile: every append is in the file when it returns
// (not yet on disk). One owner, one thread at a time. An append that fails throws Error and may leave part of a record.
#pragma once

#include <filesystem>
#include <string_view>

#include "strata/base/file.h"

namespace strata {

class AppendFile {
 public:
  // Creates the file if it is missing; what is there stays.
  explicit AppendFile(std::filesystem::path path);

  void append(std::string_view record);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace strata

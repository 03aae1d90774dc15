// SPDX-License-Identifier: Apache-2.0
// What tests of several modules share: a folder of their own that is removed afterwards, and the message of an expected
// Error. Included by *_test.cc only.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "strata/base/error.h"

namespace strata {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::path(::testing::TempDir()) / "strata_test_XXXXXX").string()) {
    STRATA_CHECK(::mkdtemp(path_.data()) != nullptr, "cannot create {}", path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path() / name; }

 private:
  std::string path_;
};

// Replaces the file's contents, without the flush to disk that makes many small files slow.
inline void write_test_file(const std::filesystem::path& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
}

// The message of the Error that `body` throws, which must be of this kind; "no error" when it throws none.
template <typename Body>
std::string error_message(ErrorKind kind, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace strata

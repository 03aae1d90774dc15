// SPDX-License-Identifier: Apache-2.0
#include "strata/store/disk_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "strata/base/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::byte> pattern(int64_t bytes, int seed) {
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  for (size_t index = 0; index < data.size(); ++index) data[index] = static_cast<std::byte>(index * 31 + seed);
  return data;
}

std::vector<std::byte> read_back(const DiskFile& file, int64_t offset, int64_t bytes) {
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  file.read(offset, data);
  return data;
}

TEST(DiskFile, ReadsBackOddSizesAtTheirOffsets) {
  TemporaryFolder folder;
  DiskFile file = DiskFile::create(folder / "a");
  int64_t offset = 0;
  for (int64_t bytes : {1, 4097, 3, 1048577}) {
    file.write(offset, pattern(bytes, static_cast<int>(bytes)));
    offset += bytes + 61;
  }
  file.sync();
  const DiskFile again = DiskFile::open(folder / "a");
  EXPECT_EQ(again.size_bytes(), offset - 61);
  offset = 0;
  for (int64_t bytes : {1, 4097, 3, 1048577}) {
    EXPECT_EQ(read_back(again, offset, bytes), pattern(bytes, static_cast<int>(bytes)));
    offset += bytes + 61;
  }
}

TEST(DiskFile, CreatingEmptiesAnOldFile) {
  TemporaryFolder folder;
  DiskFile::create(folder / "a").write(0, pattern(100, 1));
  EXPECT_EQ(DiskFile::create(folder / "a").size_bytes(), 0);
}

TEST(DiskFile, ReadingPastTheEndFails) {
  TemporaryFolder folder;
  DiskFile file = DiskFile::create(folder / "a");
  file.write(0, pattern(100, 1));
  EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { read_back(file, 90, 20); }),
              AllOf(HasSubstr("10 bytes at offset 100"), HasSubstr((folder / "a").string()), HasSubstr("ends there")));
}

TEST(DiskFile, AFullDiskNamesBytesAndFreeSpace) {
  DiskFile full = DiskFile::create("/dev/full");
  EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { full.write(64, pattern(1000, 1)); }),
              AllOf(HasSubstr("1000 bytes at offset 64 of /dev/full"), HasSubstr("No space left"), HasSubstr("free")));
}

TEST(DiskFile, AFileSizeLimitIsReportedAfterTheShortWrite) {
  TemporaryFolder folder;
  DiskFile file = DiskFile::create(folder / "a");
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight = {4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string message = error_message(ErrorKind::kFailedRun, [&] { file.write(0, pattern(5000, 1)); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, AllOf(HasSubstr("904 bytes at offset 4096"), HasSubstr("File too large"), HasSubstr("free")));
}

TEST(DiskFile, WritingToAFileOpenedForReadingFails) {
  TemporaryFolder folder;
  DiskFile::create(folder / "a").write(0, pattern(10, 1));
  DiskFile file = DiskFile::open(folder / "a");
  EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { file.write(0, pattern(4, 1)); }),
              HasSubstr("cannot write 4 bytes at offset 0"));
}

TEST(DiskFile, WrongPathsAreBadInput) {
  TemporaryFolder folder;
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { DiskFile::create(folder / "missing" / "a"); }),
              HasSubstr("cannot create"));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { DiskFile::open(folder / "a"); }), HasSubstr("cannot open"));
}

// A descriptor that can neither be read (it is a folder) nor flushed (it is a pipe-like device).
TEST(DiskFile, FailedReadsAndFlushesNameThePath) {
  TemporaryFolder folder;
  const DiskFile a_folder = DiskFile::open(folder.path());
  EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { read_back(a_folder, 0, 8); }),
              AllOf(HasSubstr("cannot read 8 bytes"), HasSubstr("Is a directory")));
  DiskFile device = DiskFile::create("/dev/null");
  EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { device.sync(); }), HasSubstr("cannot flush /dev/null"));
}

}  // namespace
}  // namespace strata

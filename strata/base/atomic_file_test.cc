// SPDX-License-Identifier: Apache-2.0
#include "strata/base/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "strata/base/testing.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AtomicFileTest : public ::testing::Test {
 protected:
  int64_t num_entries() const {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  }

  TemporaryFolder folder_;
};

TEST_F(AtomicFileTest, TargetChangesOnlyAtCommit) {
  write_file_atomically(folder_ / "a", "old");
  AtomicFile file(folder_ / "a");
  file.write("newer");
  EXPECT_EQ(read_text_file(folder_ / "a"), "old");
  file.commit();
  EXPECT_EQ(read_text_file(folder_ / "a"), "newer");
  EXPECT_EQ(num_entries(), 1);
}

TEST_F(AtomicFileTest, LeavesNothingWithoutCommit) {
  { AtomicFile(folder_ / "a").write("lost"); }
  EXPECT_EQ(num_entries(), 0);
}

TEST_F(AtomicFileTest, PwriteFillsAHeaderLeftOpen) {
  AtomicFile file(folder_ / "a");
  file.write("....body");
  file.pwrite(std::as_bytes(std::span("HEAD", 4)), 0);
  AtomicFile moved = std::move(file);
  moved.write("tail");
  EXPECT_EQ(moved.size_bytes(), 12);
  moved.commit();
  EXPECT_EQ(read_text_file(folder_ / "a"), "HEADbodytail");
}

TEST_F(AtomicFileTest, TwoWritersOfOneTargetDoNotMeet) {
  AtomicFile first(folder_ / "a"), second(folder_ / "a");
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  EXPECT_EQ(read_text_file(folder_ / "a"), "first");
}

TEST_F(AtomicFileTest, WrongPathsAreBadInput) {
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { AtomicFile(folder_ / "missing" / "a"); }),
              AllOf(HasSubstr("missing/a"), HasSubstr("No such file")));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { AtomicFile file(folder_.path()); }),
              HasSubstr("Is a directory"));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { read_text_file(folder_ / "b"); }), HasSubstr("cannot open"));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { read_text_file(folder_.path()); }),
              HasSubstr("not a regular file"));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { MappedFile file(folder_ / "b"); }), HasSubstr("cannot open"));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { free_disk_bytes(folder_ / "b"); }), HasSubstr("free space"));
}

TEST_F(AtomicFileTest, AFailedWriteNamesTargetBytesAndOffset) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight = {4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string message = error_message(ErrorKind::kFailedRun, [&] {
    AtomicFile file(folder_ / "a");
    file.write(std::string(4096, 'x'));
    file.write(std::string(100, 'y'));
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, AllOf(HasSubstr("100 bytes at offset 4096"), HasSubstr("/a:"), HasSubstr("File too large")));
  EXPECT_EQ(num_entries(), 0);
}

TEST_F(AtomicFileTest, AFullDiskSaysHowMuchIsFree) {
  // /dev/full refuses every byte with ENOSPC; the temporary is made to lead there.
  const fs::path temporary = fmt::format("{}.tmp-{}-0", (folder_ / "a").string(), ::getpid());
  AtomicFile file(folder_ / "a");
  const int full = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  ASSERT_TRUE(fs::exists(temporary));
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (fs::read_symlink(entry.path(), ignored) != fs::weakly_canonical(temporary)) continue;
    ASSERT_GE(::dup2(full, std::stoi(entry.path().filename().string())), 0);
  }
  ::close(full);
  EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { file.write("12345"); }),
              AllOf(HasSubstr("5 bytes at offset 0"), HasSubstr("No space left"), HasSubstr("bytes free")));
}

TEST_F(AtomicFileTest, FolderAppearsAtCommit) {
  AtomicFolder folder((folder_ / "model/").string(), ExistingTarget::kRefuse);
  fs::create_directory(folder.folder() / "inner");
  write_file_atomically(folder.folder() / "inner" / "a", "text");
  EXPECT_FALSE(fs::exists(folder_ / "model"));
  folder.commit();
  EXPECT_EQ(read_text_file(folder_ / "model" / "inner" / "a"), "text");
  EXPECT_EQ(num_entries(), 1);
}

TEST_F(AtomicFileTest, FolderIsRemovedWithoutCommit) {
  {
    AtomicFolder folder(folder_ / "model", ExistingTarget::kRefuse);
    write_file_atomically(folder.folder() / "a", "text");
  }
  EXPECT_EQ(num_entries(), 0);
}

TEST_F(AtomicFileTest, ExistingFolderIsRefusedOrReplacedWhole) {
  fs::create_directory(folder_ / "model");
  write_file_atomically(folder_ / "model" / "old", "old");
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { AtomicFolder(folder_ / "model", ExistingTarget::kRefuse); }),
              HasSubstr("already exists"));
  {
    AtomicFolder folder(folder_ / "model", ExistingTarget::kReplace);
    write_file_atomically(folder.folder() / "new", "new");
    folder.commit();
  }
  EXPECT_FALSE(fs::exists(folder_ / "model" / "old"));
  EXPECT_EQ(read_text_file(folder_ / "model" / "new"), "new");
  EXPECT_EQ(num_entries(), 1);
}

TEST_F(AtomicFileTest, FolderOfAKnownNameStartsEmpty) {
  fs::create_directory(folder_ / "model.writing");
  write_file_atomically(folder_ / "model.writing" / "stale", "from a killed process");
  {
    AtomicFolder folder(folder_ / "model", folder_ / "model.writing", ExistingTarget::kReplace);
    EXPECT_EQ(folder.folder(), folder_ / "model.writing");
    write_file_atomically(folder_ / "model.writing" / "new", "new");
    folder.commit();
  }
  EXPECT_EQ(num_entries(), 1);
  EXPECT_FALSE(fs::exists(folder_ / "model" / "stale"));
  EXPECT_EQ(read_text_file(folder_ / "model" / "new"), "new");
  EXPECT_THAT(
      error_message(ErrorKind::kBadInput,
                    [&] { AtomicFolder(folder_ / "model", folder_ / "model.writing", ExistingTarget::kRefuse); }),
      HasSubstr("already exists"));
  EXPECT_THAT(error_message(
                  ErrorKind::kBadInput,
                  [&] { AtomicFolder(folder_ / "no" / "a", folder_ / "no" / "a.writing", ExistingTarget::kReplace); }),
              HasSubstr("cannot create"));
}

TEST_F(AtomicFileTest, FolderThatAppearedMeanwhileIsNotTouched) {
  AtomicFolder folder(folder_ / "model", ExistingTarget::kRefuse);
  fs::create_directory(folder_ / "model");
  write_file_atomically(folder_ / "model" / "theirs", "theirs");
  EXPECT_NE(error_message(ErrorKind::kFailedRun, [&] { folder.commit(); }), "no error");
  EXPECT_EQ(read_text_file(folder_ / "model" / "theirs"), "theirs");
}

TEST_F(AtomicFileTest, MappedFileShowsBytesAndMoves) {
  write_file_atomically(folder_ / "a", "mapped");
  write_file_atomically(folder_ / "empty", "");
  MappedFile file(folder_ / "a");
  const std::byte* address = file.bytes().data();
  MappedFile moved = std::move(file);
  EXPECT_EQ(moved.bytes().data(), address);
  EXPECT_EQ(static_cast<char>(moved.bytes()[5]), 'd');
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
}

TEST(AtomicFileDeathTest, CommittingTwiceIsABug) {
  TemporaryFolder folder;
  AtomicFile file(folder / "a");
  file.commit();
  EXPECT_DEATH(file.commit(), "already committed");
}

}  // namespace
}  // namespace strata

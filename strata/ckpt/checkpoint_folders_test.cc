// SPDX-License-Identifier: Apache-2.0
// Kills, full disks and damage: the newest complete checkpoint is found, and nothing half-written looks complete.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "strata/base/testing.h"
#include "strata/ckpt/checkpoint.h"
#include "strata/ckpt/testing.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CheckpointFolders : public ::testing::Test {
 protected:
  CheckpointFolders() : run_(compile_input(tiny_gpt2(), Precision::kF32)) { run_.fill(1); }

  std::string run_folder() const { return folder_.path().string(); }
  fs::path checkpoints() const { return folder_.path() / "checkpoints"; }
  fs::path step(int64_t number) const { return checkpoint_path(run_folder(), number); }

  std::set<std::string> entries() const {
    std::set<std::string> names;
    if (fs::exists(checkpoints()))
      for (const auto& entry : fs::directory_iterator(checkpoints())) names.insert(entry.path().filename().string());
    return names;
  }
  int64_t latest() {
    warnings_.clear();
    const auto found = find_latest_complete(run_folder(), warnings_);
    return found ? found->trainer.step : -1;
  }
  // Writes steps 1 and 2, damages 2, and returns the warning about it.
  template <typename Damage>
  std::string warning_after(Damage&& damage) {
    run_.write(run_folder(), 1);
    run_.write(run_folder(), 2);
    damage(step(2));
    EXPECT_EQ(latest(), 1);
    EXPECT_THAT(warnings_, SizeIs(1));
    return warnings_.empty() ? "no warning" : warnings_[0];
  }

  TemporaryFolder folder_;
  TinyRun run_;
  std::vector<std::string> warnings_;
};

void change_byte(const fs::path& path, int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(offset);
  file.put(byte);
}

TEST_F(CheckpointFolders, NoneIsNoError) {
  EXPECT_EQ(latest(), -1);
  fs::create_directories(checkpoints() / "notes");
  EXPECT_EQ(latest(), -1);
}

TEST_F(CheckpointFolders, TheNewestIsFoundByNumber) {
  for (int64_t number : {99999999, 100000000, 5}) run_.write(run_folder(), number);
  EXPECT_EQ(latest(), 100000000);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(CheckpointFolders, AFileShortOfOneByteIsSkipped) {
  EXPECT_THAT(warning_after([](const fs::path& path) {
                fs::resize_file(path / "rank-00000.bin", fs::file_size(path / "rank-00000.bin") - 1);
              }),
              AllOf(HasSubstr("step-00000002"), HasSubstr("rank-00000.bin has "), HasSubstr(" bytes, not ")));
}

TEST_F(CheckpointFolders, AMissingFileIsSkipped) {
  EXPECT_THAT(warning_after([](const fs::path& path) { fs::remove(path / "rank-00000.bin"); }),
              HasSubstr("cannot open"));
}

TEST_F(CheckpointFolders, ACutManifestIsSkipped) {
  EXPECT_THAT(warning_after([](const fs::path& path) {
                fs::resize_file(path / "manifest.json", fs::file_size(path / "manifest.json") - 1);
              }),
              HasSubstr("does not end with its checksum"));
}

TEST_F(CheckpointFolders, AChangedByteIsSkipped) {
  EXPECT_THAT(warning_after([](const fs::path& path) { change_byte(path / "rank-00000.bin", 4096); }),
              AllOf(HasSubstr("is damaged: its checksum is"), HasSubstr("rank-00000.bin")));
}

TEST_F(CheckpointFolders, AnEmptyFolderIsSkipped) {
  EXPECT_THAT(warning_after([this](const fs::path&) {
                fs::remove_all(step(2));
                fs::create_directories(checkpoints() / "step-100");
              }),
              AllOf(HasSubstr("step-100"), HasSubstr("manifest.json")));
}

TEST_F(CheckpointFolders, NoCompleteOneIsAnError) {
  fs::create_directories(checkpoints() / "step-100");
  fs::create_directories(checkpoints() / "step-50");
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { latest(); }),
              AllOf(HasSubstr("none of the 2 checkpoints"), HasSubstr("step-100/manifest.json")));
  EXPECT_THAT(warnings_, SizeIs(2));
}

TEST_F(CheckpointFolders, TheSameStepIsReplaced) {
  run_.write(run_folder(), 1);
  run_.fill(2);
  run_.write(run_folder(), 1);
  TinyRun loaded(run_.input);
  read_checkpoint(open_checkpoint(step(1)), loaded.states());
  EXPECT_TRUE(equal_tensors(run_, loaded, 4,
                            [](const TinyRun& run, size_t chunk) { return run.set.parameter_booking[chunk]; }));
  EXPECT_THAT(entries(), SizeIs(1));
}

TEST_F(CheckpointFolders, OldOnesGoAndOthersStay) {
  for (int64_t number : {1, 2, 3, 4, 9}) run_.write(run_folder(), number);
  fs::remove(step(3) / "rank-00000.bin");
  fs::create_directories(checkpoints() / "notes");
  remove_old_checkpoints(run_folder(), 4, 2);
  EXPECT_EQ(entries(),
            (std::set<std::string>{"step-00000002", "step-00000003", "step-00000004", "step-00000009", "notes"}));
}

TEST_F(CheckpointFolders, OnlyOurTemporariesAreRemoved) {
  run_.write(run_folder(), 1);
  for (const char* name : {"step-00000002.tmp-writing", "step-00000001.tmp-7-removed"})
    fs::create_directories(checkpoints() / name / "inside");
  const std::set<std::string> others = {"step-00000003.tmp", "step-00000003.tmp-mine",
                                        "copy-of-step-00000002.tmp-writing", "step-1-backup"};
  for (const std::string& name : others) fs::create_directories(checkpoints() / name);
  EXPECT_EQ(latest(), 1);
  EXPECT_THAT(warnings_, IsEmpty());
  remove_unfinished_checkpoints(run_folder());
  std::set<std::string> left = others;
  left.insert("step-00000001");
  EXPECT_EQ(entries(), left);
}

TEST_F(CheckpointFolders, TooLittleSpaceIsSaidBeforeWriting) {
  run_.layers[0].parameters[0].rows = int64_t{1} << 50;
  EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { run_.write(run_folder(), 1); }),
              AllOf(HasSubstr("a checkpoint needs 432345"), HasSubstr(" free ("), HasSubstr("train.keep_last")));
  EXPECT_THAT(entries(), IsEmpty());
}

TEST_F(CheckpointFolders, AFullDiskLeavesTheOldOne) {
  run_.write(run_folder(), 1);
  const auto size = static_cast<rlim_t>(fs::file_size(step(1) / "rank-00000.bin"));
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  for (rlim_t limit : {rlim_t{0}, rlim_t{100}, size / 2, size - 1}) {
    const rlimit tight = {limit, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &tight);
    const std::string message = error_message(ErrorKind::kFailedRun, [&] { run_.write(run_folder(), 2); });
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_THAT(message, AllOf(HasSubstr("rank-00000.bin"), HasSubstr("File too large")));
    EXPECT_EQ(entries(), std::set<std::string>{"step-00000001"});
  }
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(latest(), 1);
}

// Root may write anywhere, so the test takes another user's rights for the write.
TEST_F(CheckpointFolders, AReadOnlyFolderIsRefusedWithItsPath) {
  fs::create_directories(checkpoints());
  fs::permissions(folder_.path(), fs::perms{0755});
  fs::permissions(checkpoints(), fs::perms{0555});
  const bool root = ::geteuid() == 0;
  ASSERT_EQ(root ? ::seteuid(65534) : 0, 0);
  const std::string message = error_message(ErrorKind::kBadInput, [&] { run_.write(run_folder(), 1); });
  ASSERT_EQ(root ? ::seteuid(0) : 0, 0);
  fs::permissions(checkpoints(), fs::perms::owner_all);
  EXPECT_THAT(message, AllOf(HasSubstr("cannot create"), HasSubstr(step(1).string()), HasSubstr("Permission denied")));
  EXPECT_THAT(entries(), IsEmpty());
}

TEST_F(CheckpointFolders, AFileInPlaceOfTheFolderIsRefused) {
  std::ofstream(checkpoints()) << "x";
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { run_.write(run_folder(), 1); }), HasSubstr("checkpoints"));
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { latest(); }), HasSubstr("cannot list"));
}

// Runs `body` in a child, kills it after `microseconds` (0: it kills itself) and waits.
template <typename Body>
void run_and_kill(int64_t microseconds, Body&& body) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    ::_exit(0);
  }
  if (microseconds > 0) {
    ::usleep(static_cast<useconds_t>(microseconds));
    ::kill(child, SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
}

TEST_F(CheckpointFolders, AKillInTheMiddleOfASaveLeavesTheOldOne) {
  run_.write(run_folder(), 1);
  run_and_kill(0, [&] {
    TrainerState trainer;
    trainer.step = 2;
    write_checkpoint(run_folder(), trainer, run_.states(), [&](DiskFile& file) {
      run_.save(file);
      ::kill(::getpid(), SIGKILL);
    });
  });
  EXPECT_THAT(entries(), SizeIs(2));  // the temporary
  EXPECT_EQ(latest(), 1);
  EXPECT_THAT(warnings_, IsEmpty());
  remove_unfinished_checkpoints(run_folder());
  EXPECT_EQ(entries(), std::set<std::string>{"step-00000001"});
}

TEST_F(CheckpointFolders, KillsAtRandomPointsLeaveACompleteOne) {
  run_.write(run_folder(), 1);
  int64_t known = 1;
  for (uint64_t round = 0; round < 12; ++round) {
    run_and_kill(500 + static_cast<int64_t>(philox(17, round, 0)[0] % 40000), [&] {
      for (int64_t number = known + 1;; ++number) {
        run_.write(run_folder(), number);
        remove_old_checkpoints(run_folder(), number, 2);
      }
    });
    const int64_t found = latest();
    EXPECT_GE(found, known);
    EXPECT_THAT(warnings_, IsEmpty());
    known = found;
    remove_unfinished_checkpoints(run_folder());
    for (const std::string& name : entries()) EXPECT_NO_THROW(open_checkpoint((checkpoints() / name).string())) << name;
  }
}

}  // namespace
}  // namespace strata

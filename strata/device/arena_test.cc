// SPDX-License-Identifier: Apache-2.0
#include "strata/device/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "strata/base/testing.h"
#include "strata/device/process_memory.h"

namespace strata {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

TEST(Arena, IsZeroAlignedAndWritable) {
  Arena arena(3 * kMib + 5);
  EXPECT_EQ(arena.size_bytes(), 3 * kMib + 5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.base()) % 64, 0u);
  EXPECT_EQ(arena.base()[0], std::byte{0});
  std::memset(arena.base(), 7, static_cast<size_t>(arena.size_bytes()));
  EXPECT_EQ(arena.base()[arena.size_bytes() - 1], std::byte{7});
}

TEST(Arena, MovingKeepsTheAddress) {
  Arena first(kMib);
  std::byte* const base = first.base();
  Arena second(std::move(first));
  EXPECT_EQ(second.base(), base);
  Arena third(0);
  third = std::move(second);
  EXPECT_EQ(third.base(), base);
  EXPECT_EQ(third.size_bytes(), kMib);
}

TEST(Arena, UntouchedPagesCostNothing) {
  const int64_t before = read_process_memory().resident_bytes();
  Arena arena(int64_t{1} << 40);
  EXPECT_LT(read_process_memory().resident_bytes() - before, kMib);
  std::memset(arena.base() + (int64_t{1} << 39), 1, 64 * kMib);
  const int64_t grown = read_process_memory().resident_bytes() - before;
  EXPECT_GE(grown, 64 * kMib);
  EXPECT_LT(grown, 70 * kMib);  // page tables do not count; huge pages round up by 2 MiB at each end
}

TEST(Arena, RefusalNamesBothNumbers) {
  const std::string message = error_message(ErrorKind::kFailedRun, [] { Arena arena(int64_t{1} << 60); });
  EXPECT_THAT(message, ::testing::HasSubstr("cannot map 1152921504606846976 bytes"));
  EXPECT_THAT(message, ::testing::HasSubstr("are available"));
}

TEST(ProcessMemory, PeakIsAtLeastWhatIsResident) {
  const ProcessMemory memory = read_process_memory();
  EXPECT_GT(memory.anonymous_bytes, 0);
  EXPECT_GE(memory.peak_resident_bytes, memory.resident_bytes());
}

// A file system root with the files that available_memory_bytes reads.
class FakeRoot {
 public:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int64_t available() const { return available_memory_bytes(root_.path()); }

 private:
  TemporaryFolder root_;
};

TEST(AvailableMemory, OfThisMachineIsPositive) { EXPECT_GT(available_memory_bytes(), 0); }

TEST(AvailableMemory, WithoutControlGroups) {
  FakeRoot root;
  root.write("proc/meminfo", "MemTotal:       4096 kB\nMemFree:  100 kB\nMemAvailable:    2048 kB\n");
  EXPECT_EQ(root.available(), 2048 * 1024);
}

TEST(AvailableMemory, TheTightestGroupAboveCounts) {
  FakeRoot root;
  root.write("proc/meminfo", "MemAvailable:    2048 kB\n");
  root.write("proc/self/cgroup", "0::/job/step\n");
  root.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  root.write("sys/fs/cgroup/job/step/memory.current", "1000\n");
  EXPECT_EQ(root.available(), 2048 * 1024);
  root.write("sys/fs/cgroup/job/memory.max", "500000\n");
  root.write("sys/fs/cgroup/job/memory.current", "200000\n");
  EXPECT_EQ(root.available(), 300000);
  root.write("sys/fs/cgroup/job/memory.stat", "anon 100\ninactive_file 50000\n");
  EXPECT_EQ(root.available(), 350000);
  root.write("sys/fs/cgroup/job/memory.max", "100000\n");
  EXPECT_EQ(root.available(), 0);
}

TEST(AvailableMemory, VersionOneGroups) {
  FakeRoot root;
  root.write("proc/meminfo", "MemAvailable:    2048 kB\n");
  root.write("proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n");
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "900000\n");
  root.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "300000\n");
  EXPECT_EQ(root.available(), 600000);
}

TEST(AvailableMemory, UnknownIsRefused) {
  FakeRoot root;
  root.write("proc/meminfo", "MemTotal:       4096 kB\n");
  EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { root.available(); }), ::testing::HasSubstr("no MemAvailable"));
}

}  // namespace
}  // namespace strata

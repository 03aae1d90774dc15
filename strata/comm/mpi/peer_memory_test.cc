// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/mpi/peer_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>
#include <vector>

#include "strata/base/testing.h"

namespace strata {
namespace {

TEST(PeerMemory, ReadsWhatIsThere) {
  std::vector<uint8_t> source(70'000), target(source.size());
  std::iota(source.begin(), source.end(), uint8_t{1});
  const auto* from = reinterpret_cast<const std::byte*>(source.data());
  auto* to = reinterpret_cast<std::byte*>(target.data());
  if (!read_peer(::getpid(), from, to, 1)) GTEST_SKIP() << "the kernel refuses";
  EXPECT_TRUE(read_peer(::getpid(), from + 1, to + 1, 69'998));
  EXPECT_EQ(target.front(), source.front());
  EXPECT_EQ(target.back(), 0);
  target.back() = source.back();
  EXPECT_TRUE(target == source);
  EXPECT_TRUE(read_peer(::getpid(), nullptr, nullptr, 0));
}

TEST(PeerMemory, TellsWhyItCannotRead) {
  std::byte byte{};
  const std::byte* const own = &byte;
  EXPECT_FALSE(read_peer(1 << 30, own, &byte, 1));  // above every process id
  EXPECT_TRUE(errno == ESRCH || errno == EPERM || errno == ENOSYS) << errno;
}

// The first page can be read and the second one cannot.
TEST(PeerMemory, TellsThatAPageIsMissing) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const pages = ::mmap(nullptr, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  std::vector<std::byte> target(2 * page);
  const auto* from = static_cast<const std::byte*>(pages);
  if (!read_peer(::getpid(), from, target.data(), 1)) GTEST_SKIP() << "the kernel refuses";
  ASSERT_EQ(::mprotect(static_cast<std::byte*>(pages) + page, page, PROT_NONE), 0);
  EXPECT_FALSE(read_peer(::getpid(), from, target.data(), static_cast<int64_t>(2 * page)));
  EXPECT_EQ(errno, EFAULT);
  ::munmap(pages, 2 * page);
}

TEST(HasLargePages, AsTheKernelSays) {
  const TemporaryFolder root;
  const std::filesystem::path folder = root.path() / "sys/kernel/mm/transparent_hugepage";
  EXPECT_FALSE(has_large_pages(root.path()));
  std::filesystem::create_directories(folder);
  for (const auto& [line, expected] :
       {std::pair("always [madvise] never\n", true), std::pair("[always] madvise never\n", true),
        std::pair("always madvise [never]\n", false)}) {
    write_test_file(folder / "enabled", line);
    EXPECT_EQ(has_large_pages(root.path()), expected) << line;
  }
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/cpu/scratch.h"

#include <gtest/gtest.h>

#include <vector>

namespace strata::kernels {
namespace {

TEST(Scratch, PiecesStartOnLinesAndDoNotOverlap) {
  std::vector<std::byte> memory(4 * kScratchLine);
  Scratch scratch(std::span<std::byte>(memory).subspan(1));
  const float* first = scratch.take<float>(3);
  const float* second = scratch.take<float>(17);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % kScratchLine, 0u);
  EXPECT_EQ(second - first, kScratchLine / 4);
  EXPECT_LE(scratch.rest().size(), static_cast<size_t>(kScratchLine));
}

TEST(ScratchDeathTest, RunningOutIsABug) {
  std::vector<std::byte> memory(100);
  EXPECT_DEATH(Scratch(memory).take<double>(100), "scratch needs 832 more bytes");
  EXPECT_DEATH(Scratch({}).take<float>(1), "0 are left");
}

}  // namespace
}  // namespace strata::kernels

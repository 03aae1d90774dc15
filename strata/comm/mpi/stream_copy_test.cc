// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/mpi/stream_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace strata {
namespace {

TEST(StreamCopy, CopiesWhatItShouldAndNothingElse) {
  std::vector<uint8_t> source(70'000);
  std::iota(source.begin(), source.end(), uint8_t{1});
  for (const size_t size : {0, 1, 63, 2047, 2048, 2049, 4096, 65'537})
    for (const size_t from : {0, 1, 32})
      for (const size_t to : {0, 1, 63, 64}) {
        std::vector<uint8_t> target(source.size(), 0xee), expected = target;
        std::copy_n(source.begin() + from, size, expected.begin() + to);
        stream_copy(reinterpret_cast<const std::byte*>(source.data() + from),
                    reinterpret_cast<std::byte*>(target.data() + to), static_cast<int64_t>(size));
        EXPECT_TRUE(target == expected) << size << " bytes from " << from << " to " << to;
      }
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "strata/base/testing.h"
#include "strata/comm/sums.h"
#include "strata/comm/testing_conformance.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

TEST(PartRange, PartsAreEqualAndTheLastShort) {
  for (const int64_t elements : {0, 1, 2, 7, 8, 9, 1000})
    for (const int64_t parts : {1, 2, 3, 8}) {
      int64_t end = 0;
      for (int64_t part = 0; part < parts; ++part) {
        const PartRange range = part_range(elements, parts, part);
        EXPECT_EQ(range.begin, end);
        EXPECT_LE(range.count, (elements + parts - 1) / parts);
        end += range.count;
        if (end < elements) {
          EXPECT_EQ(range.count, (elements + parts - 1) / parts);
        }
      }
      EXPECT_EQ(end, elements);
    }
}

TEST(PartRangeDeathTest, PartsThatAreNot) { EXPECT_DEATH(part_range(8, 2, 2), "part 2 of 2 of 8 elements"); }

class SelfConformance : public ::testing::TestWithParam<ConformanceCase> {};

TEST_P(SelfConformance, Holds) { GetParam().run(*make_self_comm()); }

INSTANTIATE_TEST_SUITE_P(Cases, SelfConformance,
                         ::testing::ValuesIn(conformance_cases().begin(), conformance_cases().end()),
                         [](const auto& info) { return info.param.name; });

TEST(SelfComm, CallsAfterAbortThrow) {
  const std::unique_ptr<Comm> comm = make_self_comm();
  const Group alone = comm->group("alone", std::vector{0}, 0);
  comm->abort("no space");
  comm->abort("later");
  EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { comm->barrier(alone); }),
              HasSubstr("rank 0: barrier in group 'alone': rank 0 ended the run: no space"));
}

TEST(CommDeathTest, CallsThatCannotBe) {
  const std::unique_ptr<Comm> comm = make_self_comm();
  const Group alone = comm->group("alone", std::vector{0}, 0);
  std::byte bytes[8] = {};
  EXPECT_DEATH(comm->group("other", std::vector{1}, 0), "rank 0 makes group 'other' of ranks 1");
  EXPECT_DEATH(comm->group("twice", std::vector{0, 0}, 0), "group 'twice' of 1 ranks: 0, 0");
  EXPECT_DEATH(comm->barrier(Group{3, 1, 0}), "group 3 of 1");
  EXPECT_DEATH(comm->all_reduce(alone, DType::kI32, bytes, 2), "all-reduce of i32");
  EXPECT_DEATH(comm->reduce_scatter(alone, DType::kU8, bytes, 2), "reduce-scatter of u8");
  EXPECT_DEATH(comm->all_gather(alone, DType::kU8, bytes, -1), "part 0 of 1 of -1 elements");
  const std::span<std::byte> own(bytes);
  const std::span<const std::byte> eight = own, four = own.first(4);
  EXPECT_DEATH(comm->all_to_all(alone, std::vector(2, eight), std::vector(1, own)),
               "all-to-all of 2 and 1 parts over 1 members");
  EXPECT_DEATH(comm->all_to_all(alone, std::vector(1, four), std::vector(1, own)),
               "all-to-all: 4 own bytes, 8 expected");
  EXPECT_DEATH(comm->broadcast(alone, 1, bytes), "broadcast from member 1 of 1");
  EXPECT_DEATH(comm->send(0, 0, bytes), "rank 0 of 1: send with rank 0");
  EXPECT_DEATH(comm->receive(1, 0, bytes), "rank 0 of 1: receive with rank 1");
}

template <typename Body>
void for_each_target(Body&& body) {
  const auto all = static_cast<uint64_t>(hwy::SupportedTargets());
  for (uint64_t rest = all; rest != 0; rest &= rest - 1) {
    const auto target = static_cast<int64_t>(rest & (~rest + 1));
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::GetChosenTarget().Update(target);
    body();
  }
  hwy::GetChosenTarget().DeInit();
}

// bf16 values are widened exactly, summed in f32 and rounded once, on every instruction set.
TEST(SumParts, RoundsBf16OnceAndLikeToBf16) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> rows[3] = {{1.0f, 256.0f, 3e38f, infinity, -0.0f, 1.0f},
                                      {0x1p-8f, 1.0f, 3e38f, -infinity, -0.0f, 0x1p-9f},
                                      {0x1p-8f, 1.0f, -3e38f, 1.0f, -0.0f, 0x1p-9f}};
  constexpr int64_t kElements = 71;  // whole vectors and single elements of every instruction set
  for_each_target([&] {
    std::vector<BF16> parts[3];
    const std::byte* pointers[3];
    for (int part = 0; part < 3; ++part) {
      for (int64_t i = 0; i < kElements; ++i)
        parts[part].push_back(to_bf16(rows[part][static_cast<size_t>(i) % rows[part].size()]));
      pointers[part] = reinterpret_cast<const std::byte*>(parts[part].data());
    }
    std::vector<BF16> sums(kElements);
    sum_parts(DType::kBF16, pointers, reinterpret_cast<std::byte*>(sums.data()), kElements);
    for (size_t i = 0; i < sums.size(); ++i) {
      const float sum = to_float(parts[0][i]) + to_float(parts[1][i]) + to_float(parts[2][i]);
      if (std::isnan(sum)) {
        EXPECT_TRUE(std::isnan(to_float(sums[i]))) << i;
      } else {
        EXPECT_EQ(sums[i].bits, to_bf16(sum).bits) << i;
      }
    }
  });
}

TEST(SumPartsDeathTest, OtherTypes) {
  const std::byte* parts[1] = {};
  EXPECT_DEATH(sum_parts(DType::kI32, parts, nullptr, 0), "values of i32 are not summed");
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "strata/base/testing.h"
#include "strata/comm/comm.h"
#include "strata/comm/testing_conformance.h"
#include "strata/comm/testing_ranks.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

constexpr double kPatient = 60;  // longer than any test waits when nothing is wrong
constexpr double kShort = 0.2;

class LocalConformance : public ::testing::TestWithParam<std::tuple<ConformanceCase, int>> {};

TEST_P(LocalConformance, Holds) {
  const auto& [one, num_ranks] = GetParam();
  run_local_ranks(num_ranks, kPatient, one.run);
}

INSTANTIATE_TEST_SUITE_P(Cases, LocalConformance,
                         ::testing::Combine(::testing::ValuesIn(conformance_cases().begin(), conformance_cases().end()),
                                            ::testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& info) {
                           return fmt::format("{}On{}", std::get<0>(info.param).name, std::get<1>(info.param));
                         });

Group world_of(Comm& comm, int num_ranks, const std::string& name = "world") {
  std::vector<int> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) ranks.push_back(rank);
  return comm.group(name, ranks, 0);
}

TEST(LocalComm, NamesTheRanksThatDoNotCome) {
  run_local_ranks(4, kShort, [](Comm& comm) {
    const Group world = world_of(comm, 4, "data");
    if (comm.rank() == 1 || comm.rank() == 3) return;
    std::byte values[16] = {};
    const std::string message =
        error_message(ErrorKind::kFailedRun, [&] { comm.all_reduce(world, DType::kF32, values, 4); });
    EXPECT_THAT(message, HasSubstr(fmt::format("rank {}: all-reduce of 4 f32 in group 'data'", comm.rank())));
    EXPECT_THAT(message, HasSubstr("waited 0.2 s for ranks 1, 3 of 0, 1, 2, 3"));
  });
}

TEST(LocalComm, ALateRankFindsNobodyEither) {
  run_local_ranks(2, kShort, [](Comm& comm) {
    const Group world = world_of(comm, 2);
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { comm.barrier(world); }), HasSubstr("waited 0.2 s"));
  });
}

TEST(LocalComm, NamesThePeerThatDoesNotReceive) {
  run_local_ranks(2, kShort, [](Comm& comm) {
    std::byte bytes[8] = {};
    if (comm.rank() == 0) {
      EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { comm.send(1, 5, bytes); }),
                  HasSubstr("rank 0: send of 8 bytes to rank 1 on lane 5: waited 0.2 s for rank 1 to receive"));
      EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { comm.receive(1, 2, bytes); }),
                  HasSubstr("rank 0: receive of 8 bytes from rank 1 on lane 2: waited 0.2 s for rank 1 to send"));
    }
  });
}

// Case B73: one rank fails, the others wait for it in calls of every kind.
TEST(LocalComm, AbortEndsWaitingAndLaterCalls) {
  run_local_ranks(4, kPatient, [](Comm& comm) {
    const Group world = world_of(comm, 4);
    std::byte bytes[16] = {};
    const auto wait = [&] {
      if (comm.rank() == 0) comm.all_gather(world, DType::kF32, bytes, 4);
      if (comm.rank() == 1) comm.send(2, 0, bytes);
      if (comm.rank() == 2) comm.receive(3, 0, bytes);
    };
    if (comm.rank() == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      comm.abort("disk is full");
      comm.abort("later trouble");
    } else {
      EXPECT_THAT(error_message(ErrorKind::kFailedRun, wait), HasSubstr("rank 3 ended the run: disk is full"));
    }
    const Group alone = comm.group("alone", std::vector{comm.rank()}, 0);
    for (const Group& group : {world, alone})
      EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { comm.barrier(group); }),
                  HasSubstr(fmt::format("rank {}: barrier in group", comm.rank())));
    EXPECT_THAT(error_message(ErrorKind::kFailedRun, [&] { comm.send((comm.rank() + 1) % 4, 0, bytes); }),
                HasSubstr("rank 3 ended the run: disk is full"));
  });
}

// Buffers are gone as soon as a rank has thrown: no other may still be copying. The address sanitizer sees it.
TEST(LocalComm, AbortWaitsForThoseWhoCopy) {
  for (int turn = 0; turn < 30; ++turn)
    run_local_ranks(3, kPatient, [turn](Comm& comm) {
      const Group world = world_of(comm, 3);
      std::thread ending;
      if (comm.rank() == 2)
        ending = std::thread([&comm, turn] {
          std::this_thread::sleep_for(std::chrono::microseconds(100 * turn));
          comm.abort("now");
        });
      try {
        for (;;) {
          std::vector<std::byte> values(1 << 20);
          comm.all_reduce(world, DType::kF32, values.data(), 1 << 18);
        }
      } catch (const Error&) {
      }
      if (ending.joinable()) ending.join();
    });
}

void differ(void (*call)(Comm& comm, const Group& world)) {
  run_local_ranks(2, 5, [&](Comm& comm) { call(comm, world_of(comm, 2, "data")); });
}

TEST(LocalCommDeathTest, DifferentCallsOfOneGroup) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto sizes = [](Comm& comm, const Group& world) {
    std::byte values[64] = {};
    comm.all_reduce(world, DType::kF32, values, comm.rank() == 0 ? 16 : 12);
  };
  EXPECT_DEATH(differ(sizes), "in group 'data' rank 0 calls all-reduce of 16 f32, rank 1 calls all-reduce of 12 f32");
  const auto kinds = [](Comm& comm, const Group& world) {
    std::byte values[64] = {};
    if (comm.rank() == 0) return comm.barrier(world);
    comm.broadcast(world, 1, values);
  };
  EXPECT_DEATH(differ(kinds), "rank 0 calls barrier, rank 1 calls broadcast of 64 u8 from member 1");
}

TEST(LocalCommDeathTest, DifferentSizesOfAPart) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto sizes = [](Comm& comm, const Group& world) {
    std::byte given[9] = {}, received[9] = {};
    const size_t size = comm.rank() == 0 ? 9 : 8;
    std::vector<std::span<const std::byte>> send(2, std::span(given).first(size));
    send[static_cast<size_t>(comm.rank())] = std::span(given).first(8);
    comm.all_to_all(world, send, std::vector(2, std::span(received).first(8)));
  };
  EXPECT_DEATH(differ(sizes), "all-to-all: member 0 gives 9 bytes to member 1, which expects 8");
}

TEST(LocalCommDeathTest, DifferentSizesOfAMessage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto sizes = [](Comm& comm, const Group&) {
    std::byte values[64] = {};
    if (comm.rank() == 0) return comm.send(1, 2, std::span(values).first(8));
    comm.receive(0, 2, std::span(values).first(9));
  };
  EXPECT_DEATH(differ(sizes), "rank 0 sends 8 bytes to rank 1 on lane 2, which receives 9");
}

TEST(LocalCommDeathTest, NoWorld) { EXPECT_DEATH(make_local_comms(0, 1.0), "0 ranks"); }

}  // namespace
}  // namespace strata

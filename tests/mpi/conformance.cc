// SPDX-License-Identifier: Apache-2.0
// The conformance cases on this process's rank, started by mpirun: conformance shared|staged|messages [gtest flags].
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "strata/comm/mpi/mpi_comm.h"
#include "strata/comm/testing_conformance.h"

namespace strata {
namespace {

std::unique_ptr<Comm> comm;  // MPI starts once in a process

class MpiConformance : public ::testing::TestWithParam<ConformanceCase> {};

TEST_P(MpiConformance, Holds) { GetParam().run(*comm); }

INSTANTIATE_TEST_SUITE_P(Cases, MpiConformance,
                         ::testing::ValuesIn(conformance_cases().begin(), conformance_cases().end()),
                         [](const auto& info) { return info.param.name; });

// Two ends of one world in one process do not disturb each other.
TEST(MpiComm, ASecondCommIsAWorldOfItsOwn) {
  const std::unique_ptr<Comm> second = make_mpi_comm(60, MpiPath::kSharedWithinNode);
  for (const ConformanceCase& one : conformance_cases()) one.run(*second);
}

// Groups end together on all members, though each rank has others between them. Otherwise this waits for ever.
TEST(MpiComm, EndsWithManyGroups) {
  const std::unique_ptr<Comm> many = make_mpi_comm(60, MpiPath::kSharedWithinNode);
  for (int members = 1; members < 1 << many->size(); ++members) {
    if ((members >> many->rank() & 1) == 0) continue;
    std::vector<int> ranks;
    for (int rank = 0; rank < many->size(); ++rank)
      if ((members >> rank & 1) == 1) ranks.push_back(rank);
    if (ranks.size() == 1) continue;
    many->barrier(many->group("some", ranks, 0));
  }
}

// Ranks other than 0 print only what fails.
class FailuresOnly : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) std::printf("rank %d: %s\n", comm->rank(), result.message());
  }
};

int run_tests(MpiPath path) {
  comm = make_mpi_comm(60, path);
  if (comm->rank() != 0) {
    ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  const int result = RUN_ALL_TESTS();
  comm.reset();
  return result;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::string_view path = argc > 1 ? argv[1] : "";
  if (path == "shared") return strata::run_tests(strata::MpiPath::kSharedWithinNode);
  if (path == "staged") return strata::run_tests(strata::MpiPath::kStagedWithinNode);
  if (path == "messages") return strata::run_tests(strata::MpiPath::kMessages);
  std::fprintf(stderr, "usage: conformance shared|staged|messages\n");
  return 2;
}

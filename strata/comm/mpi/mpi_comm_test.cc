// SPDX-License-Identifier: Apache-2.0
// What can be seen in one process; tests/mpi has the rest.
#include "strata/comm/mpi/mpi_comm.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>

#include "strata/base/error.h"

namespace strata {
namespace {

TEST(StartedByMpi, LooksAtTheEnvironment) {
  constexpr const char* kNames[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK",
                                    "SLURM_STEP_NUM_TASKS"};
  for (const char* name : kNames) ::unsetenv(name);
  EXPECT_FALSE(started_by_mpi());
  for (const char* name : kNames) {
    ::setenv(name, "2", 1);
    EXPECT_TRUE(started_by_mpi()) << name;
    ::unsetenv(name);
  }
  ::setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_FALSE(started_by_mpi());
  ::unsetenv("SLURM_STEP_NUM_TASKS");
}

// MPI starts once in a process, so each of these has one of its own.
[[noreturn]] void make_and_exit() {
  try {
    make_mpi_comm(5);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    std::_Exit(1);
  }
  std::_Exit(0);
}

TEST(MpiCommDeathTest, OneThreadIsTooFew) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start_and_make = [] {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
    make_and_exit();
  };
  EXPECT_EXIT(start_and_make(), ::testing::ExitedWithCode(1), "MPI runs with MPI_THREAD_FUNNELED, but several threads");
}

TEST(MpiCommDeathTest, MpiDoesNotStartTwice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make_twice = [] {
    make_mpi_comm(5);
    make_and_exit();
  };
  EXPECT_EXIT(make_twice(), ::testing::ExitedWithCode(1), "MPI has been finalised in this process");
}

}  // namespace
}  // namespace strata

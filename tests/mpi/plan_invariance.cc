// SPDX-License-Identifier: Apache-2.0
// Plan invariance with ranks as processes: of the first seeds, a few draws for as many ranks as mpirun started, each
// against one rank in the first process. plan_invariance [DRAWS]
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "strata/base/error.h"
#include "strata/comm/mpi/mpi_comm.h"
#include "tests/random_plan.h"

namespace strata::testing {
namespace {

constexpr int kSteps = 3;
constexpr double kLearningRate = 0.02;
constexpr double kFloor = 1e-5, kBound = 2e-5;  // those of check_sgd (tests/plan_checks.cc)

// Every element has been collected on one rank only and is 0 on the others.
void add_up(Comm& comm, std::map<std::string, std::vector<float>>& whole,
            const std::map<std::string, std::vector<float>>& reference) {
  std::vector<int> ranks(static_cast<size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const Group all = comm.group("all", ranks, kNumQueues);
  for (const auto& [name, values] : reference) {
    std::vector<float>& sum = whole[name];
    sum.resize(values.size());
    comm.all_reduce(all, DType::kF32, reinterpret_cast<std::byte*>(sum.data()), static_cast<int64_t>(sum.size()));
  }
}

PlanCourse run_rank(const PlanDraw& draw, Comm& comm) {
  ModelHarness harness(draw.options, draw.plan, comm);
  harness.fill(draw.documents);
  PlanCourse course;
  harness.collect_states(course.before);
  for (int step = 0; step < kSteps; ++step) {
    course.losses.push_back(harness.step(kLearningRate));
    course.norms.push_back(std::sqrt(harness.scalars().norm_squared));
  }
  harness.collect_states(course.after);
  return course;
}

bool holds(const PlanDraw& draw, Comm& comm) {
  const PlanCourse reference = run_one_rank(draw, kSteps, kLearningRate);
  PlanCourse course = run_rank(draw, comm);
  add_up(comm, course.before, reference.before);
  add_up(comm, course.after, reference.after);
  const Deviation deviation = largest_deviation(course, reference, kFloor);
  const bool same_start = course.before == reference.before;
  if (same_start && deviation.value < kBound) return true;
  fmt::print("rank {}: {} is off by {:.2e}{}: {}\n", comm.rank(), deviation.where, deviation.value,
             same_start ? "" : ", from other initial weights", draw.text);
  return false;
}

int run(int64_t wanted) {
  const std::unique_ptr<Comm> comm = make_mpi_comm(60);
  int64_t drawn = 0, held = 0;
  for (uint64_t seed = 1; drawn < wanted; ++seed) {
    const PlanDraw draw = draw_plan(seed, OptimizerKind::kSgd);
    if (draw.plan.num_ranks != comm->size()) continue;
    ++drawn;
    held += holds(draw, *comm) ? 1 : 0;
  }
  if (comm->rank() == 0) fmt::print("{} of {} draws for {} ranks hold\n", held, drawn, comm->size());
  return held == drawn ? 0 : 1;
}

}  // namespace
}  // namespace strata::testing

int main(int argc, char** argv) {
  try {
    return strata::testing::run(argc > 1 ? std::atoll(argv[1]) : 6);
  } catch (const strata::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

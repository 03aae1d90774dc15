// SPDX-License-Identifier: Apache-2.0
// Failures that users of other trainers have met with many ranks (docs/cases.md), and what ranks send each other in a
// step against the formulas of ZeRO (docs/programs.md). Ranks are threads here; f32.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "strata/base/error.h"
#include "tests/layout_draw.h"

namespace strata::testing {
namespace {

// B1, B4, B5, B10: tied weights, four replicas, three micro-batches, documents of unequal length. The loss is that of
// the global batch on the first rank, whose own documents are others.
TEST(ParallelCases, ZeroStagesAgree) {
  const PlanCourse one = run_one_rank(draw_of({}, 1), 3, kLearningRate);
  std::vector<PlanCourse> courses;
  for (int zero : {0, 1, 2, 3}) {
    const PlanDraw draw = draw_of({1, 1, 4, zero}, 3);
    SCOPED_TRACE(draw.text);
    courses.push_back(run_plan(draw, 3, kLearningRate));
    expect_close(courses.back(), one);
    EXPECT_EQ(courses.back().after, courses.front().after);
    for (size_t step = 0; step < 3; ++step)  // a sum of doubles by shards
      EXPECT_NEAR(courses.back().norms[step], courses.front().norms[step], 1e-12);
  }
}

// B11: the norm of the first step, ZeRO 0 and 2, dp 1, 2, 4, accumulation 1, 2.
TEST(ParallelCases, NormDoesNotDependOnZeroOrAccumulation) {
  const PlanCourse one = run_one_rank(draw_of({}, 1), 1, kLearningRate);
  for (int zero : {0, 2})
    for (int64_t dp : {1, 2, 4})
      for (int64_t accumulation : {1, 3}) {
        const PlanDraw draw = draw_of({1, 1, dp, zero}, accumulation);
        EXPECT_NEAR(run_plan(draw, 1, kLearningRate).norms[0], one.norms[0], 1e-5 * one.norms[0]) << draw.text;
      }
}

// B12: what tensor-parallel ranks hold in common counts once in the norm, so that clipping (to 0.1, which bites) moves
// the weights as far.
TEST(ParallelCases, ReplicasCountOnceInTheNorm) {
  const PlanCourse one = run_one_rank(draw_of({}, 1), 3, kLearningRate);
  ASSERT_GT(one.norms[0], 0.2);
  for (int64_t tp : {2, 4})
    for (int zero : {0, 1, 3}) {
      const PlanDraw draw = draw_of({tp, 1, 1, zero}, 1);
      SCOPED_TRACE(draw.text);
      expect_close(run_plan(draw, 3, kLearningRate), one);
    }
}

// By name, whole tensors that a rank holds all of.
using Tensors = std::map<std::string, std::vector<float>>;

std::vector<Tensors> tensors_of_ranks(const PlanDraw& draw, int steps,
                                      const std::function<bool(const Chunk&)>& wanted) {
  std::vector<Tensors> result(static_cast<size_t>(draw.plan.num_ranks));
  run_ranks(static_cast<int>(draw.plan.num_ranks), [&](int rank, Comm& comm) {
    ModelHarness harness(draw.options, draw.plan, comm);
    harness.fill(draw.documents);
    for (int step = 0; step < steps; ++step) harness.step(kLearningRate);
    const ProgramSet& set = harness.programs();
    for (size_t index = 0; index < set.chunks.size(); ++index) {
      const Chunk& chunk = set.chunks[index];
      if (!wanted(chunk)) continue;
      const auto* values = reinterpret_cast<const float*>(
          harness.executor().booking_data(*set.find("step"), set.parameter_booking[index]));
      for (const ChunkTensor& tensor : chunk.tensors)
        result[static_cast<size_t>(rank)][fmt::format("{}/{}", tensor.parameter, chunk.tied_peer_stage >= 0)].assign(
            values + tensor.offset, values + tensor.offset + tensor.num_elements());
    }
  });
  return result;
}

// What ranks hold in common is the same on all of them: everything on the data- and context-parallel replicas, norms
// and biases of split inputs (over_tp) on the tensor-parallel ranks too. B13.
void expect_equal_copies(const PlanDraw& draw) {
  SCOPED_TRACE(fmt::format("{} sequence parallel {}", draw.text, draw.plan.sequence_parallel));
  const auto tp = static_cast<size_t>(draw.plan.layers[0].tp);
  for (const bool over_tp : {false, true}) {
    const auto ranks = tensors_of_ranks(draw, 5, [&](const Chunk& chunk) { return chunk.over_tp == over_tp; });
    const size_t different = over_tp ? 1 : tp;
    ASSERT_EQ(ranks[0].empty(), over_tp && tp == 1);
    for (size_t rank = different; rank < ranks.size(); ++rank)
      EXPECT_EQ(ranks[rank], ranks[rank % different]) << "rank " << rank;
  }
}

TEST(ParallelCases, CopiesStayEqual) {
  for (int zero : {0, 2})
    for (const Degrees& degrees : {Degrees{2, 1, 2, zero}, Degrees{2, 1, 1, zero, 2}, Degrees{1, 1, 2, zero, 2}}) {
      PlanDraw draw = draw_of(degrees, 2);
      expect_equal_copies(draw);
      if (degrees.tp == 1) continue;
      draw.plan.sequence_parallel = true;
      expect_equal_copies(draw);
    }
}

// B14: the tied table on the first and the last stage, with sharded states; it counts once in the norm.
TEST(ParallelCases, TiedTablesOfTwoStagesStayEqual) {
  const PlanCourse one = run_one_rank(draw_of({}, 1), 3, kLearningRate);
  for (const Degrees& degrees :
       {Degrees{1, 2, 2, 0}, Degrees{1, 2, 2, 1}, Degrees{1, 2, 2, 2}, Degrees{2, 2, 2, 1}, Degrees{2, 3, 1, 1}}) {
    const PlanDraw draw = draw_of(degrees, 2);
    SCOPED_TRACE(draw.text);
    for (int steps : {1, 2, 3}) {
      const auto ranks = tensors_of_ranks(draw, steps, [](const Chunk& chunk) { return chunk.tied_peer_stage >= 0; });
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const auto middle = static_cast<int64_t>(rank) / (degrees.tp * degrees.dp) % (degrees.pp - 1) != 0;
        ASSERT_EQ(ranks[rank].size(), middle ? 0u : 1u);
        if (middle) continue;
        EXPECT_EQ(ranks[rank].begin()->second, ranks[rank % static_cast<size_t>(degrees.tp)].begin()->second)
            << "rank " << rank << " after " << steps << " steps";
      }
    }
    expect_close(run_plan(draw, 3, kLearningRate), one);
  }
}

// Elements that a rank sent so far, but for the two sums of scalars per step.
int64_t elements_sent(const Comm& comm) {
  int64_t sum = 0;
  for (const CommCount& count : comm.counts()) sum += count.elements;
  return sum;
}

// Elements of a step in units of 1 / dp, as a ring would send them.
int64_t compiled_elements(const Program& program) {
  int64_t sum = 0;
  for (const Instruction& instruction : program.instructions)
    if (instruction.op == Op::kCollective && instruction.chunk >= 0)
      sum += (instruction.collective == CollectiveKind::kAllReduce ? 2 : 1) * instruction.elements;
  return sum;
}

// docs/programs.md: P is all chunks, padded; the head's and the embedding's are gathered once per micro-batch.
int64_t formula_elements(const ProgramSet& set, const Plan& plan) {
  int64_t all = 0, once = 0;
  for (const Chunk& chunk : set.chunks) {
    all += chunk.elements;
    if (chunk.name == "head" || chunk.name == "embedding") once += chunk.elements;
  }
  const int zero = plan.layers[0].zero;
  const int64_t reductions = zero >= 2 && plan.reduce == GradientReduce::kEach ? plan.accumulation : 1;
  if (zero < 3) return (reductions + 1) * all;
  return reductions * all + plan.accumulation * (2 * all - once);
}

// ZeRO, section 7: 2 Psi at stages 0, 1 and 2 and 3 Psi at stage 3, times (N - 1) / N, measured on the wire.
TEST(ParallelCases, RanksSendWhatTheFormulasSay) {
  for (int64_t dp : {2, 3, 4})
    for (int zero : {0, 1, 2, 3})
      for (int64_t accumulation : {1, 3})
        for (const GradientReduce reduce : {GradientReduce::kLast, GradientReduce::kEach})
          for (const bool tied : {false, true}) {
            PlanDraw draw = draw_of({1, 1, dp, zero}, 1, tied);
            draw.plan.micro_batch = 1;
            draw.plan.accumulation = accumulation;
            draw.plan.reduce = reduce;
            SCOPED_TRACE(fmt::format("{} x {} {}", draw.text, accumulation, reduce == GradientReduce::kEach));
            run_ranks(static_cast<int>(dp), [&](int rank, Comm& comm) {
              ModelHarness harness(draw.options, draw.plan, comm);
              harness.fill(draw.documents);
              const int64_t before = elements_sent(comm);
              harness.step(kLearningRate);
              const int64_t own = part_range(2, dp, rank).count;  // of the sums of loss and norm
              const int64_t sent = elements_sent(comm) - before - (2 - own) - own * (dp - 1);
              const ProgramSet& set = harness.programs();
              EXPECT_EQ(dp * sent, (dp - 1) * formula_elements(set, draw.plan)) << "rank " << rank;
              EXPECT_EQ(formula_elements(set, draw.plan), compiled_elements(*set.find("step"))) << "rank " << rank;
            });
          }
}

}  // namespace
}  // namespace strata::testing

// SPDX-License-Identifier: Apache-2.0
// Failures that users of other trainers have met with many ranks (docs/cases.md), and what ranks send each other in a
// step against the formulas of ZeRO (docs/programs.md). Ranks are threads here; f32.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "strata/base/error.h"
#include "tests/random_plan.h"

namespace strata::testing {
namespace {

constexpr double kLearningRate = 0.02;

struct Degrees {
  int64_t tp = 1, pp = 1, dp = 1;
  int zero = 0;
};

// Twelve documents of 1 to 16 targets, dealt out to the data-parallel ranks in equal micro-batches.
PlanDraw draw_of(const Degrees& degrees, int64_t accumulation, bool tied = true) {
  constexpr int64_t kDocuments = 12;
  PlanDraw draw;
  draw.options.model = tiny_gpt2();
  draw.options.model.tied_head = tied;
  draw.options.optimizer.kind = OptimizerKind::kSgd;
  draw.options.optimizer.clip_norm = 0.1;
  draw.options.threads = 1;
  draw.options.micro_batch = kDocuments;
  const int64_t layers = num_layers(draw.options.model);
  draw.plan = single_rank_plan(draw.options.model, ActivationPolicy::kKeep, kDocuments / degrees.dp / accumulation,
                               accumulation, 1);
  draw.plan.num_ranks = degrees.tp * degrees.pp * degrees.dp;
  draw.plan.stage_layers.assign(static_cast<size_t>(degrees.pp), layers / degrees.pp);
  for (LayerPlan& layer : draw.plan.layers) {
    layer.tp = degrees.tp;
    layer.dp = degrees.dp;
    layer.zero = degrees.zero;
  }
  for (int64_t index = 0; index < kDocuments; ++index)
    draw.documents.push_back(make_documents(1, static_cast<int>(1 + index * 5 % 16),
                                            static_cast<int>(draw.options.model.vocab),
                                            static_cast<uint64_t>(index))[0]);
  draw.text = fmt::format("tp {} pp {} dp {} ZeRO {} accumulation {}", degrees.tp, degrees.pp, degrees.dp, degrees.zero,
                          accumulation);
  return draw;
}

// The bound of check_sgd (plan_checks.cc).
void expect_close(const PlanCourse& course, const PlanCourse& reference) {
  const Deviation deviation = largest_deviation(course, reference, 1e-5);
  EXPECT_LT(deviation.value, 2e-5) << deviation.where;
}

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

// B13: norm weights and biases of split inputs, of which every tensor-parallel rank has a copy.
TEST(ParallelCases, CopiesOfTensorParallelRanksStayEqual) {
  for (int zero : {0, 2}) {
    const auto tensors =
        tensors_of_ranks(draw_of({2, 1, 2, zero}, 2), 5, [](const Chunk& chunk) { return chunk.over_tp; });
    ASSERT_FALSE(tensors[0].empty());
    for (const Tensors& rank : tensors) EXPECT_EQ(rank, tensors[0]) << "ZeRO " << zero;
  }
}

// B14: the tied table on the first and the last stage, with sharded states; it counts once in the norm.
TEST(ParallelCases, TiedTablesOfTwoStagesStayEqual) {
  const PlanDraw draw = draw_of({1, 2, 2, 1}, 2);
  for (int steps : {1, 2, 3}) {
    const auto tables = tensors_of_ranks(draw, steps, [](const Chunk& chunk) { return chunk.tied_peer_stage >= 0; });
    for (const Tensors& rank : tables) {
      ASSERT_EQ(rank.size(), 1u);
      EXPECT_EQ(rank.begin()->second, tables[0].begin()->second) << "after " << steps << " steps";
    }
  }
  expect_close(run_plan(draw, 3, kLearningRate), run_one_rank(draw_of({}, 1), 3, kLearningRate));
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

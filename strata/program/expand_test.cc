// SPDX-License-Identifier: Apache-2.0
// Programs of models small enough to count by hand. One block of tiny_gpt2 with a vocabulary of 96 over tp 2 x pp 2 x
// dp 2 has these chunks, padded to 32 elements per tensor and per shard:
//   stage 0  embedding              48 x 32 + 8 x 32 = 1792               (2 shards)
//            attention.0            48 x 32 + (48 -> 64) + 32 x 16 = 2112 (2 shards)
//            attention.0.replicated 3 x 32 = 96 -> 128                    (4 shards)
//   stage 1  mlp.0                  64 x 32 + 64 + 32 x 64 = 4160         (2 shards)
//            mlp.0.replicated       96 -> 128                             (4 shards)
//            head                   48 x 32 = 1536                        (2 shards)
//            head.replicated        2 x 32 = 64 -> 128                    (4 shards)
// A message is 32 channels x 2 samples x 16 tokens = 1024 elements; the statistics of the loss are 3 of each of these
// 32 tokens from 2 ranks: 192.
#include "strata/program/expand.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "strata/base/error.h"
#include "strata/program/memory.h"
#include "strata/program/replay.h"
#include "strata/program/testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string kind_of(const Program& program, const Instruction& instruction) {
  if (instruction.op == Op::kSend) return fmt::format("send {}", queue_name(instruction.queue));
  if (instruction.op == Op::kRecv) return fmt::format("recv {}", queue_name(instruction.queue));
  constexpr std::array<std::string_view, 4> names = {"all-reduce", "reduce-scatter", "all-gather", "rotate"};
  return fmt::format("{} {}", names[static_cast<size_t>(instruction.collective)],
                     program.groups[static_cast<size_t>(instruction.group)].name);
}

// "all-gather data 2x3904": how many and how many elements in all, by name.
std::vector<std::string> traffic(const Program& program) {
  std::map<std::string, std::pair<int, int64_t>> sums;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.op != Op::kCollective && instruction.op != Op::kSend && instruction.op != Op::kRecv) continue;
    auto& [count, elements] = sums[kind_of(program, instruction)];
    ++count;
    elements += instruction.elements;
  }
  std::vector<std::string> list;
  for (const auto& [name, sum] : sums) list.push_back(fmt::format("{} {}x{}", name, sum.first, sum.second));
  return list;
}

std::vector<std::string> traffic_of_stage(int zero, int64_t accumulation, GradientReduce reduce, int64_t stage) {
  CompileInput input = tiny_input(tiny_gpt2(1, false), {2, 2, 2, zero}, accumulation);
  input.model.vocab = 96;
  input.plan.reduce = reduce;
  const std::vector<Program> programs = compile_programs(input, ProgramKind::kStep);
  const std::vector<std::string> first = traffic(programs[static_cast<size_t>(stage) * 4]);
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(traffic(programs[static_cast<size_t>(stage) * 4 + rank]), first) << "rank " << rank;
  return first;
}

// Tensor parallelism sums the output of a layer forward and the gradient of its input backward: of the embedding only
// the output, of the head only the gradient.
TEST(Expand, TrafficOfZero0) {
  EXPECT_THAT(traffic_of_stage(0, 1, GradientReduce::kLast, 0),
              ElementsAre("all-reduce data 2x3904", "all-reduce replica 1x128", "all-reduce tensor 3x3072",
                          "all-reduce world 1x2", "recv backward-pipe 1x1024", "send forward-pipe 1x1024"));
  EXPECT_THAT(traffic_of_stage(0, 3, GradientReduce::kLast, 0),
              ElementsAre("all-reduce data 2x3904", "all-reduce replica 1x128", "all-reduce tensor 9x9216",
                          "all-reduce world 1x2", "recv backward-pipe 3x3072", "send forward-pipe 3x3072"));
  EXPECT_THAT(traffic_of_stage(0, 3, GradientReduce::kLast, 1),
              ElementsAre("all-gather tensor 3x576", "all-reduce data 2x5696", "all-reduce replica 2x256",
                          "all-reduce tensor 9x9216", "all-reduce world 1x2", "recv forward-pipe 3x3072",
                          "send backward-pipe 3x3072"));
}

TEST(Expand, TrafficOfZero1And2) {
  for (int zero : {1, 2})
    for (int64_t m : {1, 3})
      EXPECT_THAT(traffic_of_stage(zero, m, GradientReduce::kLast, 0),
                  ElementsAre("all-gather data 2x3904", "all-gather replica 1x128",
                              fmt::format("all-reduce tensor {}x{}", 3 * m, 3072 * m), "all-reduce world 1x2",
                              fmt::format("recv backward-pipe {}x{}", m, 1024 * m), "reduce-scatter data 2x3904",
                              "reduce-scatter replica 1x128", fmt::format("send forward-pipe {}x{}", m, 1024 * m)));
}

TEST(Expand, EachReducesEveryMicroBatchFromZero2On) {
  EXPECT_THAT(traffic_of_stage(2, 3, GradientReduce::kEach, 0),
              ::testing::IsSupersetOf(
                  {"reduce-scatter data 6x11712", "reduce-scatter replica 3x384", "all-gather data 2x3904"}));
  EXPECT_THAT(traffic_of_stage(1, 3, GradientReduce::kEach, 0),
              ::testing::IsSupersetOf({"reduce-scatter data 2x3904"}));
}

// A chunk is gathered once for consecutive runs of its layer; backward of the embedding (e) reads no weights. With E,
// A, M, H for the layers: stage 0, one micro-batch:   E A | A e             -> E 1, A 1 stage 0, three (F F B F B B): E
// A E A | A e | E A | A e | A e -> E 3, A 4 stage 1, one: M | H M -> M 2, H 1; three: M | H M | M | H M | M | H M -> M
// 4, H 3
TEST(Expand, TrafficOfZero3) {
  EXPECT_THAT(
      traffic_of_stage(3, 1, GradientReduce::kLast, 0),
      ::testing::IsSupersetOf({"all-gather data 2x3904", "all-gather replica 1x128", "reduce-scatter data 2x3904"}));
  EXPECT_THAT(
      traffic_of_stage(3, 3, GradientReduce::kLast, 0),
      ::testing::IsSupersetOf({"all-gather data 7x13824", "all-gather replica 4x512", "reduce-scatter data 2x3904"}));
  EXPECT_THAT(
      traffic_of_stage(3, 1, GradientReduce::kLast, 1),
      ::testing::IsSupersetOf({"all-gather data 3x9856", "all-gather replica 3x384", "reduce-scatter data 2x5696"}));
  EXPECT_THAT(
      traffic_of_stage(3, 3, GradientReduce::kLast, 1),
      ::testing::IsSupersetOf({"all-gather data 7x21248", "all-gather replica 7x896", "reduce-scatter data 2x5696"}));
}

// What the next layer waits for does not queue behind what nobody waits for.
TEST(Expand, GathersStandBeforeReductions) {
  const auto is_collective = [](const Instruction& instruction, CollectiveKind kind) {
    return instruction.op == Op::kCollective && instruction.chunk >= 0 && instruction.collective == kind;
  };
  const ProgramSet set = compile(tiny_input(tiny_gpt2(3, true), {1, 1, 2, 3}, 1), {ProgramKind::kStep});
  const std::vector<Instruction>& step = set.programs[0].instructions;
  int followed = 0;
  for (size_t index = 1; index < step.size(); ++index) {
    const bool gathers = is_collective(step[index], CollectiveKind::kAllGather);
    EXPECT_FALSE(gathers && is_collective(step[index - 1], CollectiveKind::kReduceScatter)) << index;
    followed += is_collective(step[index], CollectiveKind::kReduceScatter) &&
                is_collective(step[index - 1], CollectiveKind::kAllGather);
  }
  EXPECT_GE(followed, 4);
}

// Logits exist a tile at a time: a micro-batch of 32 tokens in tiles of at most 5 has seven, each with a gather of 2 x
// 3 x 5 statistics at most. The norm is apart from them, and evaluation has no gradients.
TEST(Expand, TheSplitHeadRunsByTiles) {
  CompileInput input = tiny_input(tiny_gpt2(1, true), {2, 1, 1, 0}, 1);
  input.plan.head_tile = 5;
  const std::vector<LayerDecl> layers = declare_layers(input.model);
  const ProgramSet set = compile(input, {ProgramKind::kStep, ProgramKind::kEvaluation});
  EXPECT_THAT(traffic(set.programs[0]), ::testing::Contains("all-gather tensor 7x210"));
  std::vector<std::string> runs;
  for (const Instruction& instruction : set.programs[1].instructions)
    if (instruction.op == Op::kRun && layers[static_cast<size_t>(instruction.layer)].kind == LayerKind::kHead)
      runs.push_back(instruction_name(instruction, layers));
  ASSERT_EQ(runs.size(), 15u);
  EXPECT_EQ(runs[0], "run head.norm forward mb0");
  EXPECT_EQ(runs[1], "run head.tile-logits forward mb0 tile 0 of 7");
  EXPECT_EQ(runs[14], "run head.tile-loss forward mb0 tile 6 of 7");
  for (const Booking& booking : set.programs[0].bookings)
    if (booking.name == "head.tile_logits.mb0") {
      EXPECT_EQ(booking.bytes, 5 * 48 * 4);
    }
}

// Without sequence parallelism a sum after the output of embedding, attention and MLP forward, and after the input
// gradient of attention, MLP and head; besides the statistics of the loss, 192 elements. With it each is a
// reduce-scatter, and what a layer reads is gathered: forward the inputs of attention, MLP and head; backward their
// output gradients, with their inputs once more, and the embedding's gradient.
TEST(Expand, TrafficOfSequenceParallelism) {
  CompileInput input = tiny_input(tiny_gpt2(1, false), {2, 1, 2, 0}, 1);
  EXPECT_THAT(traffic(step_of(input).programs.front()), ::testing::Contains("all-reduce tensor 6x6144"));
  input.plan.sequence_parallel = true;
  EXPECT_THAT(traffic(step_of(input).programs.front()),
              ::testing::IsSupersetOf({"all-gather tensor 9x8384", "reduce-scatter tensor 6x6144"}));
}

// Over cp 4 a rank has at most 2 samples x 4 of 16 tokens. Keys and values: 2 x 2 heads of 8 = 32 channels per token,
// so 8 x 32 = 256 elements per message, 3 of them forward, 3 of them backward and 4 with gradients; with two layers of
// two micro-batches four times as many. Over tp 2 half of the heads.
TEST(Expand, TrafficOfContextParallelism) {
  const auto context_traffic = [](int64_t tp, int64_t blocks, int64_t accumulation, ActivationPolicy policy) {
    CompileInput input = tiny_input(tiny_llama(blocks), {.tp = tp, .cp = 4}, accumulation);
    set_activations(input, policy);
    const std::vector<Program> programs = compile_programs(input, ProgramKind::kStep);
    EXPECT_THAT(check_world(programs), IsEmpty());
    std::vector<std::string> rotations;
    for (const Program& program : programs)
      for (const std::string& line : traffic(program))
        if (line.starts_with("rotate") && (rotations.empty() || rotations.back() != line)) rotations.push_back(line);
    return rotations;
  };
  EXPECT_THAT(context_traffic(1, 1, 1, ActivationPolicy::kKeep), ElementsAre("rotate context 10x2560"));
  EXPECT_THAT(context_traffic(1, 2, 2, ActivationPolicy::kKeep), ElementsAre("rotate context 40x10240"));
  EXPECT_THAT(context_traffic(2, 1, 1, ActivationPolicy::kSelective), ElementsAre("rotate context 10x1280"));
  EXPECT_THAT(context_traffic(1, 1, 1, ActivationPolicy::kFull), ElementsAre("rotate context 13x3328"));
}

// Gradients are summed over dp x cp, each of which has half of the chunks' states.
TEST(Expand, ContextRanksShareStates) {
  const ProgramSet set = step_of(tiny_input(tiny_gpt2(1, false), {.dp = 1, .zero = 1, .cp = 2}, 1));
  const Program& program = set.programs.front();
  for (const Chunk& chunk : set.chunks) EXPECT_EQ(chunk.num_shards, 2) << chunk.name;
  for (const Instruction& instruction : program.instructions)
    if (instruction.op == Op::kCollective && instruction.chunk >= 0) {
      EXPECT_THAT(program.groups[static_cast<size_t>(instruction.group)].ranks, ElementsAre(0, 1));
    }
}

int64_t elements_of(const ProgramSet& set, const std::string& name) {
  for (const Chunk& chunk : set.chunks)
    if (chunk.name == name) return chunk.elements;
  return 0;
}

// Elements that one of N ranks sends in a ring: (N - 1) / N of the buffer for a gather or a reduce-scatter, twice for
// an all-reduce.
int64_t ring_elements_times_n(const Program& program, int64_t ranks) {
  int64_t sum = 0;
  for (const Instruction& instruction : program.instructions)
    if (instruction.op == Op::kCollective && instruction.chunk >= 0)
      sum += (instruction.collective == CollectiveKind::kAllReduce ? 2 : 1) * instruction.elements * (ranks - 1);
  return sum;
}

// ZeRO, section 7: 2 Psi for stages 0, 1 and 2, 3 Psi for stage 3, with Psi padded. The head runs forward and backward
// in one, so its chunk is gathered once, and so is the embedding's, whose backward reads no weights:
// 3 Psi - Psi_head - Psi_embedding. A tied table is gathered for the embedding and for the head, its chunk apart from
// theirs.
TEST(Expand, ElementsPerStepAreThoseOfZero) {
  for (int64_t ranks : {2, 4})
    for (bool tied : {false, true})
      for (int zero : {0, 1, 2, 3}) {
        const ProgramSet set = step_of(tiny_input(tiny_gpt2(2, tied), {1, 1, ranks, zero}, 1));
        const int64_t psi = padded_elements(set);
        const int64_t wanted = zero < 3 ? 2 * psi : 3 * psi - elements_of(set, "head") - elements_of(set, "embedding");
        EXPECT_EQ(ring_elements_times_n(set.programs.front(), ranks), wanted * (ranks - 1))
            << "zero " << zero << " tied " << tied;
      }
}

// Per parameter of one chunk, in list order: "=" sets, "+" adds.
std::string gradient_accesses(const CompileInput& input, const std::string& chunk_name) {
  const ProgramSet set = step_of(input);
  const Program& program = set.programs.front();
  std::string text;
  for (const Instruction& instruction : program.instructions)
    for (const Use& use : instruction.uses)
      if (instruction.op == Op::kRun && use.role == Role::kGradient &&
          program.bookings[static_cast<size_t>(use.booking)].name == chunk_name + ".gradient")
        text += use.access == Access::kWrite ? "=" : "+";
  return text;
}

// The head sets the tied table's gradient, the embedding adds; two micro-batches.
TEST(Expand, FirstGradientSetsAndLaterOnesAdd) {
  CompileInput input = tiny_input(tiny_gpt2(1, true), {1, 1, 2, 2}, 2);
  EXPECT_EQ(gradient_accesses(input, "embedding.tied"), "=+++");
  EXPECT_EQ(gradient_accesses(input, "embedding"), "=+");
  EXPECT_EQ(gradient_accesses(input, "head"), "==++");  // norm weight and bias
  input.plan.reduce = GradientReduce::kEach;
  EXPECT_EQ(gradient_accesses(input, "embedding.tied"), "=+=+");
  EXPECT_EQ(gradient_accesses(input, "head"), "====");
}

TEST(Expand, EachAddsIntoTheShard) {
  CompileInput input = tiny_input(tiny_gpt2(1, false), {1, 1, 2, 2}, 3);
  input.plan.reduce = GradientReduce::kEach;
  const Program program = step_of(input).programs.front();
  std::string text;
  for (const Instruction& instruction : program.instructions)
    if (instruction.op == Op::kCollective && instruction.collective == CollectiveKind::kReduceScatter &&
        instruction.chunk == 0)
      text += instruction.uses[1].access == Access::kWrite ? "=" : "+";
  EXPECT_EQ(text, "=++");
}

// 97 x 32 = 3104 elements, padded to 3136 for two shards. At ZeRO 0 they travel whole, otherwise the owned half.
TEST(Expand, TiedTableAcrossStages) {
  for (int zero : {0, 1, 3}) {
    const int64_t owned = zero == 0 ? 3136 : 1568;
    const std::vector<Program> programs =
        compile_programs(tiny_input(tiny_gpt2(1, true), {1, 2, 2, zero}, 1), ProgramKind::kStep);
    const std::vector<std::string> owner = traffic(programs[0]), alias = traffic(programs[2]);
    EXPECT_THAT(alias, ::testing::IsSupersetOf({fmt::format("send backward-pipe 2x{}", 1024 + owned),
                                                fmt::format("recv forward-pipe 2x{}", 1024 + owned)}));
    EXPECT_THAT(owner, ::testing::IsSupersetOf({fmt::format("recv backward-pipe 2x{}", 1024 + owned),
                                                fmt::format("send forward-pipe 2x{}", 1024 + owned)}));
    const int addition =
        find_instruction(programs[0], [&](const Instruction& i) { return i.op == Op::kRecv && i.elements == owned; });
    EXPECT_EQ(programs[0].instructions[static_cast<size_t>(addition)].uses[0].access, Access::kReadWrite);
  }
}

TEST(Expand, EveryChunkCountsInOneNormAndHasItsUpdate) {
  for (int zero : {0, 1, 3}) {
    const std::vector<ProgramSet> sets =
        compile_world(tiny_input(tiny_gpt2(2, true), {1, 2, 2, zero}, 1), {ProgramKind::kStep});
    int64_t counted = 0;
    for (const ProgramSet& set : sets) {
      int64_t updated = 0, owned = 0;
      for (const Instruction& instruction : set.programs.front().instructions) {
        if (instruction.op == Op::kUpdate) {
          EXPECT_TRUE(instruction.if_finite);
          updated += set.chunks[static_cast<size_t>(instruction.chunk)].owned_elements();
        }
        if (instruction.op == Op::kScalar && instruction.scalar == ScalarOp::kChunkNorm)
          counted += set.chunks[static_cast<size_t>(instruction.chunk)].owned_elements();
      }
      for (const Chunk& chunk : set.chunks) owned += chunk.tied_alias ? 0 : chunk.owned_elements();
      EXPECT_EQ(updated, owned);
    }
    EXPECT_EQ(counted, padded_elements(sets[0]) + padded_elements(sets[2]) - elements_of(sets[2], "head.tied"))
        << "zero " << zero;
  }
}

// Evaluation is forward only, saving copies what the rank owns: 3 values per element in f32 AdamW, all of it over the
// ranks.
TEST(Expand, SaveCopiesEveryStateOnce) {
  for (Precision precision : {Precision::kF32, Precision::kBF16})
    for (int zero : {0, 2}) {
      CompileInput input = tiny_input(tiny_gpt2(2, false), {1, 1, 4, zero}, 1);
      input.precision = precision;
      int64_t elements = 0;
      const std::vector<ProgramSet> sets = compile_world(input, {ProgramKind::kSave});
      for (const ProgramSet& set : sets)
        for (const Instruction& instruction : set.programs.front().instructions) elements += instruction.elements;
      EXPECT_EQ(elements, 3 * padded_elements(sets[0]));
    }
}

// tp 2 to dp 2: each rank has its samples already. Back it needs the other's, and so do the gradients.
TEST(Expand, RowsChangeHandsOnlyWhereTheyMust) {
  CompileInput input = tiny_input(tiny_gpt2(1, false), {.tp = 2}, 1);
  input.plan.layers[1] = {.tp = 1, .dp = 2};
  const ProgramSet set = compile(input, {ProgramKind::kStep});
  std::vector<std::string> moves;
  for (const Instruction& instruction : set.find("step")->instructions)
    if (instruction.reader >= 0)
      moves.push_back(fmt::format("{} {} to {} of {}", op_name(instruction.op), instruction.layer, instruction.reader,
                                  instruction.elements));
  // A micro-batch is 2 samples of 16 tokens, 32 wide.
  EXPECT_THAT(moves, ::testing::ElementsAre("copy 0 to 1 of 1024", "collective 1 to 2 of 1024", "copy 2 to 1 of 1024",
                                            "collective 1 to 0 of 1024"));
}

}  // namespace
}  // namespace strata

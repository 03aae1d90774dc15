// SPDX-License-Identifier: Apache-2.0
// Every element of every tensor is owned by exactly one saving rank of any plan, and lies where its rank's tensors are.
#include "strata/program/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "strata/base/random.h"
#include "strata/program/testing.h"

namespace strata {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr uint64_t kKey = 11;

// A number from 1 to `largest`, the same in every run.
int64_t draw(uint64_t counter, int64_t largest) {
  return 1 + static_cast<int64_t>(philox(kKey, counter, 0)[0] % static_cast<uint64_t>(largest));
}

LayerPlace tensor_place(int64_t tensor, int64_t tp) {
  LayerPlace place;
  place.tensor = tensor;
  place.tp = tp;
  return place;
}

TEST(Rectangles, BlocksAreSplitOneByOne) {
  ParameterDecl decl;
  decl.rows = 8 + 4 + 4;
  decl.cols = 5;
  decl.partition = Partition::kRows;
  decl.split_blocks = {8, 4, 4};
  EXPECT_THAT(tensor_parallel_rectangles(decl, tensor_place(1, 2)),
              ElementsAre(Rectangle{4, 4, 0, 5}, Rectangle{10, 2, 0, 5}, Rectangle{14, 2, 0, 5}));
  EXPECT_THAT(tensor_parallel_rectangles(decl, tensor_place(0, 1)), ElementsAre(Rectangle{0, 16, 0, 5}));
  decl.split_blocks.clear();
  EXPECT_THAT(tensor_parallel_rectangles(decl, tensor_place(3, 4)), ElementsAre(Rectangle{12, 4, 0, 5}));
  decl.partition = Partition::kReplicated;
  EXPECT_THAT(tensor_parallel_rectangles(decl, tensor_place(3, 4)), ElementsAre(Rectangle{0, 16, 0, 5}));
}

TEST(Rectangles, ColumnsAndFusedBiases) {
  ParameterDecl decl;
  decl.rows = 3;
  decl.cols = 12;
  decl.partition = Partition::kCols;
  EXPECT_THAT(tensor_parallel_rectangles(decl, tensor_place(2, 3)), ElementsAre(Rectangle{0, 3, 8, 4}));
  decl.rows = 1;
  decl.split_blocks = {6, 3, 3};
  EXPECT_THAT(tensor_parallel_rectangles(decl, tensor_place(1, 3)),
              ElementsAre(Rectangle{0, 1, 2, 2}, Rectangle{0, 1, 7, 1}, Rectangle{0, 1, 10, 1}));
}

TEST(Rectangles, RowsOfTablesNeedNotDivide) {
  ParameterDecl decl;
  decl.rows = 7;
  decl.cols = 5;
  decl.partition = Partition::kTableRows;
  EXPECT_THAT(tensor_parallel_rectangles(decl, tensor_place(0, 3)), ElementsAre(Rectangle{0, 2, 0, 5}));
  EXPECT_THAT(tensor_parallel_rectangles(decl, tensor_place(1, 3)), ElementsAre(Rectangle{2, 2, 0, 5}));
  EXPECT_THAT(tensor_parallel_rectangles(decl, tensor_place(2, 3)), ElementsAre(Rectangle{4, 3, 0, 5}));
}

TEST(RectanglesDeathTest, WhatDoesNotDivideIsABug) {
  ParameterDecl decl;
  decl.name = "odd";
  decl.rows = 9;
  decl.cols = 2;
  decl.partition = Partition::kRows;
  EXPECT_DEATH(tensor_parallel_rectangles(decl, tensor_place(0, 2)), "odd: a block of 9 over tp 2");
  decl.partition = Partition::kCols;
  decl.split_blocks = {1, 1};
  EXPECT_DEATH(tensor_parallel_rectangles(decl, tensor_place(0, 2)), "odd has blocks of columns");
}

// A tensor of 4 x 6; the first part: the middle columns, rows 1 to 3 without the first and last element.
TEST(CommonRuns, AcrossRectangles) {
  const TensorPart middle{{1, 3, 2, 3}, 1, 7};
  EXPECT_THAT(common_runs(middle, whole_tensor(4, 6)),
              ElementsAre(CommonRun{0, 9, 2}, CommonRun{2, 14, 3}, CommonRun{5, 20, 2}));
  EXPECT_THAT(common_runs(middle, {{0, 2, 0, 6}, 0, 12}), ElementsAre(CommonRun{0, 9, 2}));
  EXPECT_THAT(common_runs(middle, {{0, 4, 5, 1}, 0, 4}), ElementsAre());
  EXPECT_THAT(common_runs({{1, 2, 0, 6}, 3, 8}, whole_tensor(4, 6)), ElementsAre(CommonRun{0, 9, 8}));
  EXPECT_THAT(common_runs(middle, {{1, 3, 2, 3}, 3, 6}), ElementsAre(CommonRun{2, 0, 5}));
  EXPECT_THAT(common_runs({{0, 0, 0, 0}, 0, 0}, whole_tensor(4, 6)), ElementsAre());
}

std::map<int64_t, int64_t> places_by_element(const TensorPart& part, int64_t cols) {
  std::map<int64_t, int64_t> places;
  for (int64_t index = 0; index < part.count; ++index) {
    const int64_t at = part.begin + index;
    const Rectangle& rectangle = part.rectangle;
    places[(rectangle.row + at / rectangle.cols) * cols + rectangle.col + at % rectangle.cols] = index;
  }
  return places;
}

// Against the list of all elements.
TEST(CommonRuns, AreTheCommonElements) {
  constexpr int64_t kRows = 7, kCols = 9;
  uint64_t counter = 0;
  const auto any_part = [&] {
    TensorPart part;
    part.rectangle.rows = draw(counter++, kRows);
    part.rectangle.cols = draw(counter++, kCols);
    part.rectangle.row = draw(counter++, kRows - part.rectangle.rows + 1) - 1;
    part.rectangle.col = draw(counter++, kCols - part.rectangle.cols + 1) - 1;
    part.count = draw(counter++, part.rectangle.num_elements());
    part.begin = draw(counter++, part.rectangle.num_elements() - part.count + 1) - 1;
    return part;
  };
  for (int round = 0; round < 2000; ++round) {
    const TensorPart first = any_part(), second = any_part();
    const std::map<int64_t, int64_t> in_first = places_by_element(first, kCols);
    std::map<int64_t, int64_t> wanted, found;
    for (const auto& [element, place] : places_by_element(second, kCols))
      if (in_first.contains(element)) wanted[in_first.at(element)] = place;
    for (const CommonRun& run : common_runs(first, second))
      for (int64_t index = 0; index < run.count; ++index) found[run.first + index] = run.second + index;
    ASSERT_EQ(found, wanted) << round;
  }
}

// The element of the whole tensor at (row, col) of a rank's local one, worked out from the blocks alone.
int64_t whole_element(const ParameterDecl& decl, int64_t tensor, int64_t tp, int64_t row, int64_t col) {
  if (decl.partition == Partition::kReplicated) return row * decl.cols + col;
  if (decl.partition == Partition::kTableRows) return (decl.rows * tensor / tp + row) * decl.cols + col;
  const bool by_rows = decl.partition == Partition::kRows;
  std::vector<int64_t> blocks = decl.split_blocks;
  if (blocks.empty()) blocks = {by_rows ? decl.rows : decl.cols};
  int64_t& along = by_rows ? row : col;
  int64_t begin = 0;  // of the block in the whole tensor; `along` becomes the place in the rank's share of it
  size_t block = 0;
  for (; along >= blocks[block] / tp; ++block) {
    along -= blocks[block] / tp;
    begin += blocks[block];
  }
  along += begin + tensor * (blocks[block] / tp);
  return row * decl.cols + col;
}

ModelSpec biased_llama() {
  ModelSpec model = tiny_llama(2);
  model.attention_bias = model.mlp_bias = true;
  return model;
}

std::vector<CompileInput> any_inputs() {
  std::vector<CompileInput> inputs;
  for (const ModelSpec& model : {tiny_gpt2(2, false), tiny_gpt2(2, true), tiny_llama(2), biased_llama()})
    for (int64_t tp : {1, 2})
      for (int64_t pp : {1, 3})
        for (int64_t dp : {1, 2, 5})
          for (int zero : {0, 1, 2, 3}) inputs.push_back(tiny_input(model, {tp, pp, dp, zero}, 1));
  for (int64_t dp : {1, 7})
    for (int zero : {0, 3}) inputs.push_back(tiny_input(tiny_gpt2(3, true), {4, 1, dp, zero}, 1));
  return inputs;
}

// What one rank's parts of a chunk must be: the elements of its local tensors between `begin` and `end`.
void expect_places(const std::vector<ChunkPart>& parts, const std::vector<LayerDecl>& layers, const Chunk& chunk,
                   const RankPlace& place, int64_t begin, int64_t end) {
  std::map<int64_t, std::tuple<int, int, int64_t>> wanted, found;  // by place: layer, parameter, element
  for (const ChunkTensor& tensor : chunk.tensors)
    for (int64_t row = 0; row < tensor.rows; ++row)
      for (int64_t col = 0; col < tensor.cols; ++col) {
        const int64_t at = tensor.offset + row * tensor.cols + col;
        const ParameterDecl& decl = layers[tensor.layer].parameters[tensor.parameter];
        if (at >= begin && at < end)
          wanted[at] = {
              tensor.layer, tensor.parameter,
              whole_element(decl, place.layers[tensor.layer].tensor, place.layers[tensor.layer].tp, row, col)};
      }
  for (const ChunkPart& part : parts)
    for (const auto& [element, index] :
         places_by_element(part.part, layers[part.layer].parameters[part.parameter].cols))
      found[part.place + index] = {part.layer, part.parameter, element};
  ASSERT_EQ(found, wanted) << chunk.name;
}

TEST(Parts, LieWhereTheTensorsAre) {
  for (const CompileInput& input : any_inputs()) {
    const std::vector<LayerDecl> layers = declare_layers(input.model);
    const int rank = static_cast<int>(draw(static_cast<uint64_t>(input.plan.num_ranks), input.plan.num_ranks)) - 1;
    const RankPlace place = place_of_rank(input.plan, rank);
    for (const Chunk& chunk : make_chunks(layers, input.plan, rank)) {
      expect_places(held_parts(layers, chunk, place), layers, chunk, place, chunk.held_begin(),
                    chunk.held_begin() + chunk.held_elements());
      expect_places(owned_parts(layers, chunk, place), layers, chunk, place, chunk.owned_begin(),
                    chunk.owned_begin() + chunk.owned_elements());
    }
  }
}

TEST(Parts, SavedPartsOfAllRanksCoverEveryElementOnce) {
  for (const CompileInput& input : any_inputs()) {
    const std::vector<LayerDecl> layers = declare_layers(input.model);
    std::map<std::string, std::vector<int>> covered;
    for (int rank = 0; rank < input.plan.num_ranks; ++rank)
      for (const Chunk& chunk : make_chunks(layers, input.plan, rank)) {
        if (!chunk.saved_here()) continue;
        for (const ChunkPart& part : owned_parts(layers, chunk, place_of_rank(input.plan, rank))) {
          const ParameterDecl& decl = layers[part.layer].parameters[part.parameter];
          std::vector<int>& times = covered[decl.name];
          times.resize(static_cast<size_t>(decl.num_elements()));
          for (const auto& [element, place] : places_by_element(part.part, decl.cols))
            ++times[static_cast<size_t>(element)];
        }
      }
    int64_t total = 0;
    for (const auto& [name, times] : covered) {
      ASSERT_THAT(times, Each(1)) << name << " " << input.plan.num_ranks;
      total += static_cast<int64_t>(times.size());
    }
    ASSERT_EQ(total, count_parameters(layers));
  }
}

// Ranks 1 and 2 of three: shards of one chunk that holds its parameters whole below ZeRO 3.
TEST(Parts, ACopyOfTheSaveProgramReadsWhatTheRankOwns) {
  for (int zero : {1, 3}) {
    CompileInput input = tiny_input(tiny_gpt2(1, false), {1, 1, 3, zero}, 1);
    input.rank = 2;
    const ProgramSet set = compile(input, {ProgramKind::kSave});
    const Program& save = set.programs.front();
    int64_t copies = 0;
    for (const Instruction& copy : save.instructions) {
      const Chunk& chunk = set.chunks[copy.chunk];
      const Booking& from = save.bookings[copy.uses[0].booking];
      const CopySource source = copy_source(save, set, copy);
      EXPECT_EQ(source.dtype, DType::kF32);
      EXPECT_EQ(source.elements, chunk.owned_elements());
      const bool whole = zero == 1 && copy.uses[0].role == Role::kParameter;
      EXPECT_EQ(source.offset - from.offset, whole ? 4 * 2 * chunk.elements / 3 : 0);
      EXPECT_LE(source.offset + 4 * source.elements, from.offset + from.bytes);
      ++copies;
    }
    EXPECT_EQ(copies, 3 * static_cast<int64_t>(set.chunks.size()));  // parameters and two moments
  }
}

}  // namespace
}  // namespace strata

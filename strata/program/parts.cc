// SPDX-License-Identifier: Apache-2.0
#include "strata/program/parts.h"

#include <algorithm>

#include "strata/base/error.h"

namespace strata {
namespace {

// Parts of the chunk's elements [begin, end).
std::vector<ChunkPart> parts_between(const std::vector<LayerDecl>& layers, const Chunk& chunk, const RankPlace& place,
                                     int64_t begin, int64_t end) {
  std::vector<ChunkPart> parts;
  for (const ChunkTensor& tensor : chunk.tensors) {
    int64_t at = tensor.offset;
    for (const Rectangle& rectangle :
         tensor_parallel_rectangles(layers[tensor.layer].parameters[tensor.parameter], place.layers[tensor.layer])) {
      const int64_t first = std::max(at, begin);
      const int64_t last = std::min(at + rectangle.num_elements(), end);
      if (first < last) parts.push_back({tensor.layer, tensor.parameter, {rectangle, first - at, last - first}, first});
      at += rectangle.num_elements();
    }
    STRATA_CHECK(at == tensor.offset + tensor.num_elements(), "the rectangles of {} have {} elements, not {}",
                 layers[tensor.layer].parameters[tensor.parameter].name, at - tensor.offset, tensor.num_elements());
  }
  return parts;
}

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
};

// Columns of the tensor that a part has in one of its rows.
Interval columns_in_row(const TensorPart& part, int64_t row) {
  const Rectangle& rectangle = part.rectangle;
  const int64_t row_begin = (row - rectangle.row) * rectangle.cols;
  const int64_t begin = std::max(part.begin, row_begin);
  const int64_t end = std::min(part.begin + part.count, row_begin + rectangle.cols);
  return {rectangle.col + begin - row_begin, rectangle.col + end - row_begin};
}

int64_t place_in(const TensorPart& part, int64_t row, int64_t col) {
  return (row - part.rectangle.row) * part.rectangle.cols + col - part.rectangle.col - part.begin;
}

Interval rows_of(const TensorPart& part) {
  if (part.count == 0) return {};
  return {part.rectangle.row + part.begin / part.rectangle.cols,
          part.rectangle.row + (part.begin + part.count - 1) / part.rectangle.cols + 1};
}

}  // namespace

TensorPart whole_tensor(int64_t rows, int64_t cols) { return {{0, rows, 0, cols}, 0, rows * cols}; }

std::vector<CommonRun> common_runs(const TensorPart& first, const TensorPart& second) {
  const Interval first_rows = rows_of(first), second_rows = rows_of(second);
  std::vector<CommonRun> runs;
  if (first.rectangle == second.rectangle) {
    const int64_t begin = std::max(first.begin, second.begin);
    const int64_t end = std::min(first.begin + first.count, second.begin + second.count);
    if (begin < end) runs.push_back({begin - first.begin, begin - second.begin, end - begin});
    return runs;
  }
  const int64_t last = std::min(first_rows.end, second_rows.end);
  for (int64_t row = std::max(first_rows.begin, second_rows.begin); row < last; ++row) {
    const Interval a = columns_in_row(first, row), b = columns_in_row(second, row);
    const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
    if (begin >= end) continue;
    const CommonRun run{place_in(first, row, begin), place_in(second, row, begin), end - begin};
    const bool continues = !runs.empty() && runs.back().first + runs.back().count == run.first &&
                           runs.back().second + runs.back().count == run.second;
    if (continues)
      runs.back().count += run.count;
    else
      runs.push_back(run);
  }
  return runs;
}

std::vector<Rectangle> tensor_parallel_rectangles(const ParameterDecl& parameter, const LayerPlace& place) {
  if (parameter.partition == Partition::kReplicated || place.tp == 1) return {{0, parameter.rows, 0, parameter.cols}};
  if (parameter.partition == Partition::kTableRows) {
    const Share share = share_of(parameter.rows, place.tp, place.tensor);
    return {{share.begin, share.count, 0, parameter.cols}};
  }
  const bool by_rows = parameter.partition == Partition::kRows;
  std::vector<int64_t> blocks = parameter.split_blocks;
  if (blocks.empty()) blocks = {by_rows ? parameter.rows : parameter.cols};
  STRATA_CHECK(by_rows || blocks.size() == 1 || parameter.rows == 1, "{} has blocks of columns", parameter.name);
  std::vector<Rectangle> rectangles;
  int64_t block_begin = 0;
  for (int64_t block : blocks) {
    STRATA_CHECK(block % place.tp == 0, "{}: a block of {} over tp {}", parameter.name, block, place.tp);
    const int64_t share = block / place.tp, begin = block_begin + place.tensor * share;
    rectangles.push_back(by_rows ? Rectangle{begin, share, 0, parameter.cols}
                                 : Rectangle{0, parameter.rows, begin, share});
    block_begin += block;
  }
  return rectangles;
}

std::vector<ChunkPart> held_parts(const std::vector<LayerDecl>& layers, const Chunk& chunk, const RankPlace& place) {
  return parts_between(layers, chunk, place, chunk.held_begin(), chunk.held_begin() + chunk.held_elements());
}

std::vector<ChunkPart> owned_parts(const std::vector<LayerDecl>& layers, const Chunk& chunk, const RankPlace& place) {
  return parts_between(layers, chunk, place, chunk.owned_begin(), chunk.owned_begin() + chunk.owned_elements());
}

CopySource copy_source(const Program& save, const ProgramSet& set, const Instruction& copy) {
  const Use& use = copy.uses.front();
  const Chunk& chunk = set.chunks[copy.chunk];
  const Booking& booking = save.bookings[use.booking];
  if (use.role != Role::kParameter) return {booking.offset, DType::kF32, copy.elements};
  const DType dtype = booking.bytes == 4 * chunk.held_elements() ? DType::kF32 : DType::kBF16;
  const int64_t skipped = chunk.owned_begin() - chunk.held_begin();
  return {booking.offset + dtype_bytes(dtype) * skipped, dtype, copy.elements};
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// The map from a rank's memory to whole tensors. A rank holds rectangles of a tensor (tensor parallelism, one for every
// block of a fused projection), one after the other and row-major; a ZeRO shard is a range of its chunk and cuts
// through rows. What is read or written of a tensor anywhere, in memory or in a file, is a list of TensorParts. Pure.
#pragma once

#include <vector>

#include "strata/program/chunks.h"
#include "strata/tensor/tensor.h"

namespace strata {

struct Rectangle {
  int64_t row = 0, rows = 0, col = 0, cols = 0;  // of the whole tensor
  int64_t num_elements() const { return rows * cols; }
  bool operator==(const Rectangle&) const = default;
};

// Consecutive elements, row-major, of a rectangle of a tensor.
struct TensorPart {
  Rectangle rectangle;
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const TensorPart&) const = default;
};
TensorPart whole_tensor(int64_t rows, int64_t cols);

// Elements that two parts of one tensor have in common and that follow each other in both.
struct CommonRun {
  int64_t first = 0;   // from the begin of the first part
  int64_t second = 0;  // of the second
  int64_t count = 0;
  bool operator==(const CommonRun&) const = default;
};
// In the order of the first part, as long as possible.
std::vector<CommonRun> common_runs(const TensorPart& first, const TensorPart& second);

// What a tensor-parallel rank has of a parameter, in the order of its memory.
std::vector<Rectangle> tensor_parallel_rectangles(const ParameterDecl& parameter, const LayerPlace& place);

// A part of one of a chunk's tensors; `place` is of its first element, from the begin of the chunk.
struct ChunkPart {
  int layer = -1;
  int parameter = -1;
  TensorPart part;
  int64_t place = 0;
};
// What the rank's parameter booking holds, which begins at chunk.held_begin(), and what its optimizer updates, whose
// states begin at chunk.owned_begin(). In the order of places; padding belongs to no part.
std::vector<ChunkPart> held_parts(const std::vector<LayerDecl>& layers, const Chunk& chunk, const RankPlace& place);
std::vector<ChunkPart> owned_parts(const std::vector<LayerDecl>& layers, const Chunk& chunk, const RankPlace& place);

// What a copy of the save program reads and writes as f32: of states what a rank owns, and of parameters without a
// master (all of f32, and frozen ones) what it would own.
struct CopySource {
  int64_t offset = 0;  // bytes in the device arena
  DType dtype = DType::kF32;
  int64_t elements = 0;
};
CopySource copy_source(const Program& save, const ProgramSet& set, const Instruction& copy);

}  // namespace strata

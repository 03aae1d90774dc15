// SPDX-License-Identifier: Apache-2.0
// manifest.json of a checkpoint (docs/formats/checkpoint.md) as plain data and as text, and the lists that ranks leave
// for it. Each text ends with a checksum of everything before it, so one that parses is the one that was written. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/program/parts.h"
#include "strata/spec/model_spec.h"

namespace strata {

// Where a run stands between two steps; everything but the tensors that resuming needs.
struct TrainerState {
  int64_t step = 0;           // finished
  int64_t update_step = 0;    // of them, those that updated the weights
  int64_t skipped_steps = 0;  // of them, those with a non-finite gradient
  int64_t samples_seen = 0;
  int64_t tokens_seen = 0;
  double peak_learning_rate = 0;
  std::string tokenizer;
  std::string data_fingerprint;
  std::string config_toml;
  bool operator==(const TrainerState&) const = default;
};

// A part of one tensor's state in one file, f32.
struct SavedPart {
  std::string tensor;  // global name
  std::string state;
  int64_t rows = 0;  // of the whole tensor
  int64_t cols = 0;
  TensorPart part;
  std::string file;
  int64_t offset = 0;  // bytes
  std::string checksum;
  int64_t bytes() const { return 4 * part.count; }
};

struct SavedFile {
  std::string name;
  int64_t bytes = 0;
};

// What one rank wrote: its file, if it owns anything, and what lies where in it.
struct PartList {
  std::vector<SavedFile> files;
  std::vector<SavedPart> parts;
};

struct Manifest {
  TrainerState trainer;
  ModelSpec model;
  PartList saved;  // by all ranks
};

// Empty when the parts of one tensor and state cover it exactly once, otherwise what is wrong: "2 of 10 elements",
// "elements that are there twice".
std::string coverage_fault(const std::vector<const SavedPart*>& parts);

std::string part_list_text(const PartList& list);
PartList parse_part_list(const std::string& text, const std::string& where);

std::string manifest_text(const Manifest& manifest);
// Throws Error (bad input) that names `where` for text that is cut off, changed, of another format or version.
Manifest parse_manifest(const std::string& text, const std::string& where);

}  // namespace strata

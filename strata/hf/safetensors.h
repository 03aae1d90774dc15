// SPDX-License-Identifier: Apache-2.0
// Reading and writing .safetensors. The reader maps the file and validates all of its header before anything is used:
// sizes, names, dtypes, and that the tensors tile the data without overlap or hole. The writer takes tensors in any
// order, whole or in pieces, never holds one, and the file appears complete or not at all. Errors name the file and the
// tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strata/base/atomic_file.h"
#include "strata/base/file.h"
#include "strata/tensor/tensor.h"

namespace strata {

struct SafetensorsTensor {
  std::string stored_dtype;          // as in the file: "F32", "BF16", "F16", ...
  std::optional<DType> dtype;        // empty: one that Strata has no element type for
  std::vector<int64_t> shape;        // empty: a scalar
  std::span<const std::byte> bytes;  // not necessarily aligned
};

class SafetensorsFile {
 public:
  // Throws Error when the file is not a sound .safetensors file.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, SafetensorsTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  // Throws Error for a missing tensor, or one whose dtype Strata does not read. Its `dtype` is set.
  const SafetensorsTensor& at(const std::string& name) const;

 private:
  MappedFile file_;
  std::map<std::string, SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

class SafetensorsWriter {
 public:
  // Names are unique. Throws Error when the file system has less free space than the file will need.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries);

  // The whole tensor; each once, in any order.
  void write(const std::string& name, std::span<const std::byte> bytes);
  // Its next bytes.
  void append(const std::string& name, std::span<const std::byte> bytes);
  // Every tensor is written. Call once.
  void commit();
  int64_t file_bytes() const { return file_bytes_; }

 private:
  struct Place {
    int64_t offset = 0;
    int64_t num_bytes = 0;
    int64_t written_bytes = 0;
  };
  AtomicFile file_;
  std::map<std::string, Place> places_;
  int64_t file_bytes_ = 0;
};

}  // namespace strata

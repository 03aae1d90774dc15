// SPDX-License-Identifier: Apache-2.0
#include "strata/ckpt/checkpoint_parameters.h"

#include <filesystem>
#include <span>

#include "strata/base/error.h"

namespace strata {

TensorView CheckpointParameters::read(const ParameterDecl& parameter) {
  std::vector<const SavedPart*> parts;
  for (const SavedPart& part : checkpoint_.parts)
    if (part.state == kParametersState && part.tensor == parameter.name) parts.push_back(&part);
  if (parts.empty()) throw_bad_input("checkpoint {} has no {}", checkpoint_.folder, parameter.name);
  for (const SavedPart* part : parts)
    if (part->rows != parameter.rows || part->cols != parameter.cols)
      throw_bad_input("checkpoint {}: {} is {} x {}, not {} x {}", checkpoint_.folder, parameter.name, part->rows,
                      part->cols, parameter.rows, parameter.cols);
  const std::string fault = coverage_fault(parts);
  if (!fault.empty()) throw_bad_input("checkpoint {} lacks {} of {}", checkpoint_.folder, fault, parameter.name);
  values_.resize(static_cast<size_t>(parameter.num_elements()));
  const TensorPart whole = whole_tensor(parameter.rows, parameter.cols);
  for (const SavedPart* part : parts) {
    const DiskFile file = DiskFile::open(std::filesystem::path(checkpoint_.folder) / part->file);
    for (const CommonRun& run : common_runs(whole, part->part))
      file.read(part->offset + 4 * run.second, std::as_writable_bytes(std::span(values_).subspan(
                                                   static_cast<size_t>(run.first), static_cast<size_t>(run.count))));
  }
  return {values_.data(), DType::kF32, parameter.rows, parameter.cols};
}

}  // namespace strata

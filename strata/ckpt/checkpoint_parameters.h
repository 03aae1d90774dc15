// SPDX-License-Identifier: Apache-2.0
// The parameters of a checkpoint as whole tensors, f32, for export and for looking inside: one rank puts together what
// any number of ranks saved, one tensor in memory at a time. One rank, one thread; no executor.
#pragma once

#include <string>
#include <vector>

#include "strata/ckpt/checkpoint.h"
#include "strata/tensor/tensor.h"

namespace strata {

class CheckpointParameters {
 public:
  // `checkpoint` must outlive this.
  explicit CheckpointParameters(const CheckpointInfo& checkpoint) : checkpoint_(checkpoint) {}

  // (rows, cols); valid until the next call. Throws Error when the checkpoint lacks it or has it in another shape.
  TensorView read(const ParameterDecl& parameter);

 private:
  const CheckpointInfo& checkpoint_;
  std::vector<float> values_;
};

}  // namespace strata

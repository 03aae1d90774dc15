// SPDX-License-Identifier: Apache-2.0
// c (m, n) f32 += op(a) * op(b) in bf16 on the calling thread, by oneDNN. An object belongs to one thread and keeps the
// primitive of the last shape; making one for a shape that oneDNN has seen before takes microseconds.
#pragma once

#include <memory>
#include <span>

#include "strata/kernels/cpu/sgemm.h"

namespace strata::kernels {

struct Bf16Operand {
  const BF16* data;
  int64_t stride;
  Trans trans;
};

class Bf16Product {
 public:
  // `scratch` is what the product may use; more is a bug.
  explicit Bf16Product(std::span<std::byte> scratch);
  ~Bf16Product();
  Bf16Product(const Bf16Product&) = delete;
  Bf16Product& operator=(const Bf16Product&) = delete;

  void add(const ProductSize& size, const Bf16Operand& a, const Bf16Operand& b, const Target& c);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::kernels

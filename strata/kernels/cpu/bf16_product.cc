// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/cpu/bf16_product.h"

#include <array>
#include <dnnl.hpp>

namespace strata::kernels {
namespace {

using Key = std::array<int64_t, 8>;

dnnl::memory::desc describe(int64_t rows, int64_t cols, int64_t stride, Trans trans) {
  const dnnl::memory::dims strides =
      trans == Trans::kYes ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, cols}, dnnl::memory::data_type::bf16, strides};
}

}  // namespace

struct Bf16Product::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::span<std::byte> scratch;
  Key key{};
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  dnnl::memory a, b, c, scratchpad;

  void prepare(const ProductSize& size, const Bf16Operand& a_operand, const Bf16Operand& b_operand, int64_t c_stride);
};

void Bf16Product::State::prepare(const ProductSize& size, const Bf16Operand& a_operand, const Bf16Operand& b_operand,
                                 int64_t c_stride) {
  const Key wanted{size.m,
                   size.n,
                   size.k,
                   a_operand.stride,
                   b_operand.stride,
                   c_stride,
                   static_cast<int64_t>(a_operand.trans),
                   static_cast<int64_t>(b_operand.trans)};
  if (wanted == key) return;
  dnnl::post_ops sum;
  sum.append_sum(1.0f);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(sum);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::memory::desc c_description({size.m, size.n}, dnnl::memory::data_type::f32,
                                         dnnl::memory::dims{c_stride, 1});
  description = dnnl::matmul::primitive_desc(
      dnnl::matmul::desc(describe(size.m, size.k, a_operand.stride, a_operand.trans),
                         describe(size.k, size.n, b_operand.stride, b_operand.trans), c_description),
      attributes, engine);
  const size_t needed = description.scratchpad_desc().get_size();
  STRATA_CHECK(needed <= scratch.size(), "a bf16 product {} x {} x {} needs {} scratch bytes, {} are planned", size.m,
               size.n, size.k, needed, scratch.size());
  primitive = dnnl::matmul(description);
  a = dnnl::memory(description.src_desc(), engine, nullptr);
  b = dnnl::memory(description.weights_desc(), engine, nullptr);
  c = dnnl::memory(description.dst_desc(), engine, nullptr);
  scratchpad = dnnl::memory(description.scratchpad_desc(), engine, scratch.data());
  key = wanted;
}

Bf16Product::Bf16Product(std::span<std::byte> scratch) : state_(std::make_unique<State>()) {
  state_->scratch = scratch;
}
Bf16Product::~Bf16Product() = default;

void Bf16Product::add(const ProductSize& size, const Bf16Operand& a, const Bf16Operand& b, const Target& c) {
  state_->prepare(size, a, b, c.stride);
  state_->a.set_data_handle(const_cast<BF16*>(a.data));
  state_->b.set_data_handle(const_cast<BF16*>(b.data));
  state_->c.set_data_handle(c.data);
  state_->primitive.execute(state_->stream, {{DNNL_ARG_SRC, state_->a},
                                             {DNNL_ARG_WEIGHTS, state_->b},
                                             {DNNL_ARG_DST, state_->c},
                                             {DNNL_ARG_SCRATCHPAD, state_->scratchpad}});
}

}  // namespace strata::kernels

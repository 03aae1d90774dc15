// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/ref/element.h"
#include "strata/kernels/ref/products.h"

namespace strata::kernels::ref {

void gemm(const Context&, const GemmArgs& args) {
  const bool trans_a = args.trans_a == Trans::kYes, trans_b = args.trans_b == Trans::kYes;
  const int64_t depth = trans_a ? args.a.rows : args.a.cols;
  for (int64_t row = 0; row < args.c.rows; ++row)
    for (int64_t col = 0; col < args.c.cols; ++col) {
      double sum = args.write == Write::kAdd ? read_element(args.c, row, col) : 0.0;
      for (int64_t i = 0; i < depth; ++i)
        sum += (trans_a ? read_element(args.a, i, row) : read_element(args.a, row, i)) *
               (trans_b ? read_element(args.b, col, i) : read_element(args.b, i, col));
      write_element(args.c, row, col, sum);
    }
}

void linear_forward(const Context&, const TensorView& x, const TensorView& weight, const TensorView& bias,
                    const TensorView& y) {
  for (int64_t token = 0; token < y.rows; ++token)
    for (int64_t out = 0; out < y.cols; ++out) {
      double sum = bias.empty() ? 0.0 : read_element(bias, 0, out);
      for (int64_t in = 0; in < x.cols; ++in) sum += read_element(x, token, in) * read_element(weight, out, in);
      write_element(y, token, out, sum);
    }
}

void linear_backward_input(const Context& context, const TensorView& dy, const TensorView& weight,
                           const TensorView& dx) {
  ref::gemm(context, {.a = dy, .b = weight, .c = dx});
}

void linear_backward_weight(const Context& context, const TensorView& dy, const TensorView& x,
                            const TensorView& dweight, const TensorView& dbias, Write write) {
  if (!dweight.empty()) ref::gemm(context, {.a = dy, .b = x, .c = dweight, .trans_a = Trans::kYes, .write = write});
  if (dbias.empty()) return;
  for (int64_t out = 0; out < dy.cols; ++out) {
    double sum = write == Write::kAdd ? read_element(dbias, 0, out) : 0.0;
    for (int64_t token = 0; token < dy.rows; ++token) sum += read_element(dy, token, out);
    write_element(dbias, 0, out, sum);
  }
}

}  // namespace strata::kernels::ref

// SPDX-License-Identifier: Apache-2.0
// The products of kernels.h (gemm, linear, attention, head) as plain loops in double, rounded once when stored: the
// truth the fast ones are tested against. One thread, no scratch, any stride. Dropout draws the same numbers.
#pragma once

#include "strata/kernels/kernels.h"

namespace strata::kernels::ref {

void gemm(const Context&, const GemmArgs& args);
void linear_forward(const Context&, const TensorView& x, const TensorView& weight, const TensorView& bias,
                    const TensorView& y);
void linear_backward_input(const Context&, const TensorView& dy, const TensorView& weight, const TensorView& dx);
void linear_backward_weight(const Context&, const TensorView& dy, const TensorView& x, const TensorView& dweight,
                            const TensorView& dbias, Write write);

void attention_forward(const Context&, const AttentionArgs& args, const TensorView& q, const TensorView& k,
                       const TensorView& v, const TensorView& out, const TensorView& lse);
void attention_backward(const Context&, const AttentionArgs& args, const TensorView& q, const TensorView& k,
                        const TensorView& v, const TensorView& out, const TensorView& lse, const TensorView& dout,
                        const TensorView& dq, const TensorView& dk, const TensorView& dv);

void head_forward(const Context&, const HeadArgs& args, const TensorView& x, const TensorView& weight,
                  double* loss_sum);
void head_forward_backward(const Context&, const HeadArgs& args, float gradient_scale, const TensorView& x,
                           const TensorView& weight, double* loss_sum, const TensorView& dx, const TensorView& dweight,
                           Write write);
void head_logits(const Context&, const TensorView& x, const TensorView& weight, const TensorView& logits);
void head_statistics(const Context&, const HeadTile& tile, const TensorView& x, const TensorView& weight,
                     const TensorView& logits, const TensorView& statistics);
void head_loss(const HeadTile& tile, const TensorView& statistics, double* loss_sum);
void head_gradients(const Context&, const HeadTile& tile, float gradient_scale, const TensorView& x,
                    const TensorView& weight, const TensorView& logits, const TensorView& statistics,
                    const TensorView& dx, const TensorView& dweight, Write write);

}  // namespace strata::kernels::ref

// SPDX-License-Identifier: Apache-2.0
// The normalisation, elementwise and parameter functions of kernels.h as plain loops in double, rounded once to the
// storage of the result: the truth the fast ones are tested against. Any dtype pair, any stride; one thread.
// Random numbers and the scale of dropout are those of the fast functions, bit for bit.
#pragma once

#include "strata/kernels/kernels.h"

namespace strata::kernels::ref {

void norm_forward(const Context&, NormKind kind, float eps, const TensorView& x, const TensorView& weight,
                  const TensorView& bias, const TensorView& y, const TensorView& stats);
void norm_apply(const Context&, NormKind kind, const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& stats, const TensorView& y);
void norm_backward_input(const Context&, NormKind kind, const TensorView& dy, const TensorView& x,
                         const TensorView& weight, const TensorView& stats, const TensorView& residual,
                         const TensorView& dx);
void norm_backward_weight(const Context&, NormKind kind, const TensorView& dy, const TensorView& x,
                          const TensorView& stats, const TensorView& dweight, const TensorView& dbias, Write write);

void activation_forward(const Context&, ActivationKind kind, const TensorView& pre, const TensorView& act);
void activation_backward(const Context&, ActivationKind kind, const TensorView& dact, const TensorView& pre,
                         const TensorView& dpre);

void dropout(const Context&, const Dropout& dropout, const TensorView& x, const TensorView& y);
void add_residual(const Context&, const Dropout& dropout, const TensorView& x, const TensorView& residual,
                  const TensorView& y);

void rope(const Context&, const RopeArgs& args, std::span<const int32_t> positions, const TensorView& qkv);

void embedding_forward(const Context&, std::span<const int32_t> ids, std::span<const int32_t> positions,
                       const TablePart& token_table, const TablePart& position_table, const Dropout& dropout,
                       const TensorView& x);
void embedding_backward(const Context&, std::span<const int32_t> ids, std::span<const int32_t> positions,
                        const TensorView& dx, const Dropout& dropout, const TablePart& dtoken,
                        const TablePart& dposition, Write write_token, Write write_position);

void convert(const Context&, const TensorView& from, const TensorView& to);

double sum_of_squares(const Context&, const TensorView& x);
void adamw(const Context&, const AdamWArgs& args, const TensorView& gradient, const TensorView& master,
           const TensorView& m, const TensorView& v, const TensorView& weight);
void sgd(const Context&, const SgdArgs& args, const TensorView& gradient, const TensorView& master,
         const TensorView& momentum_buffer, const TensorView& weight);

}  // namespace strata::kernels::ref

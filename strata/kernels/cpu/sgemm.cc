// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/cpu/sgemm.h"

#include <dnnl.h>

namespace strata::kernels {

void sgemm(const ProductSize& size, float alpha, const Operand& a, const Operand& b, float beta, const Target& c) {
  const dnnl_status_t status =
      dnnl_sgemm(a.trans == Trans::kYes ? 'T' : 'N', b.trans == Trans::kYes ? 'T' : 'N', size.m, size.n, size.k, alpha,
                 a.data, a.stride, b.data, b.stride, beta, c.data, c.stride);
  STRATA_CHECK(status == dnnl_success, "sgemm {} x {} x {} with strides {}, {}, {} gave status {}", size.m, size.n,
               size.k, a.stride, b.stride, c.stride, static_cast<int>(status));
}

}  // namespace strata::kernels

// SPDX-License-Identifier: Apache-2.0
#include "strata/kernels/peak.h"

#include <algorithm>
#include <chrono>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/kernels/cpu/peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Ten independent chains cover the latency of two fused units. Returns flops done; the sum keeps the work alive.
double fused_multiply_adds(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto scale = hn::Set(d, 0.999f);
  const auto shift = hn::Set(d, 0.001f);
  auto a0 = hn::Set(d, 0.1f), a1 = hn::Set(d, 0.2f), a2 = hn::Set(d, 0.3f), a3 = hn::Set(d, 0.4f),
       a4 = hn::Set(d, 0.5f);
  auto a5 = hn::Set(d, 0.6f), a6 = hn::Set(d, 0.7f), a7 = hn::Set(d, 0.8f), a8 = hn::Set(d, 0.9f),
       a9 = hn::Set(d, 1.0f);
  for (int64_t round = 0; round < rounds; ++round) {
    a0 = hn::MulAdd(a0, scale, shift);
    a1 = hn::MulAdd(a1, scale, shift);
    a2 = hn::MulAdd(a2, scale, shift);
    a3 = hn::MulAdd(a3, scale, shift);
    a4 = hn::MulAdd(a4, scale, shift);
    a5 = hn::MulAdd(a5, scale, shift);
    a6 = hn::MulAdd(a6, scale, shift);
    a7 = hn::MulAdd(a7, scale, shift);
    a8 = hn::MulAdd(a8, scale, shift);
    a9 = hn::MulAdd(a9, scale, shift);
  }
  const auto low = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), a4);
  const auto high = hn::Add(hn::Add(hn::Add(a5, a6), hn::Add(a7, a8)), a9);
  *sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
  return 2.0 * 10.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace HWY_NAMESPACE
}  // namespace strata::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {

HWY_EXPORT(fused_multiply_adds);

double measure_peak_flops(Team& team) {
  constexpr int64_t kRounds = 500'000;
  constexpr int kRuns = 24;
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> flops(team.num_threads());
    std::vector<float> sinks(team.num_threads());
    const auto start = std::chrono::steady_clock::now();
    team.run(
        [&](int member, int) { flops[member] = HWY_DYNAMIC_DISPATCH(fused_multiply_adds)(kRounds, &sinks[member]); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    double total = 0;
    for (double part : flops) total += part;
    best = std::max(best, total / seconds);
  }
  return best;
}

}  // namespace strata::kernels
#endif

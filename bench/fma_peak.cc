// SPDX-License-Identifier: Apache-2.0
// The peak that the other benchmarks are measured against: independent f32 fused multiply-adds in registers, on the
// widest vectors Highway finds, on all threads at once. Prints "fma_peak <threads> <target> <GFLOP/s>", the best
// of `repeats`.
//   fma_peak [threads = 2] [repeats = 5]

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fma_peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Measurement {
  double flops;
  float sink;  // keeps the arithmetic alive
};

// Twelve chains: more than latency (4) times ports (2) needs, few enough for 16 registers.
Measurement multiply_add(int64_t rounds) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999f);
  const auto b = hn::Set(d, 0.001f);
  auto c0 = hn::Iota(d, 0.0f), c1 = hn::Iota(d, 1.0f), c2 = hn::Iota(d, 2.0f), c3 = hn::Iota(d, 3.0f);
  auto c4 = hn::Iota(d, 4.0f), c5 = hn::Iota(d, 5.0f), c6 = hn::Iota(d, 6.0f), c7 = hn::Iota(d, 7.0f);
  auto c8 = hn::Iota(d, 8.0f), c9 = hn::Iota(d, 9.0f), c10 = hn::Iota(d, 10.0f), c11 = hn::Iota(d, 11.0f);
  for (int64_t i = 0; i < rounds; ++i) {
    c0 = hn::MulAdd(c0, a, b), c1 = hn::MulAdd(c1, a, b), c2 = hn::MulAdd(c2, a, b), c3 = hn::MulAdd(c3, a, b);
    c4 = hn::MulAdd(c4, a, b), c5 = hn::MulAdd(c5, a, b), c6 = hn::MulAdd(c6, a, b), c7 = hn::MulAdd(c7, a, b);
    c8 = hn::MulAdd(c8, a, b), c9 = hn::MulAdd(c9, a, b), c10 = hn::MulAdd(c10, a, b), c11 = hn::MulAdd(c11, a, b);
  }
  const auto sum_a = hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)), hn::Add(c4, c5));
  const auto sum_b = hn::Add(hn::Add(hn::Add(c6, c7), hn::Add(c8, c9)), hn::Add(c10, c11));
  const double flops = 2.0 * 12.0 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
  return {flops, hn::GetLane(hn::SumOfLanes(d, hn::Add(sum_a, sum_b)))};
}

double multiply_add_flops(int64_t rounds, volatile float* sink) {
  const Measurement measurement = multiply_add(rounds);
  *sink = measurement.sink;
  return measurement.flops;
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace strata::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::bench {
HWY_EXPORT(multiply_add_flops);
HWY_EXPORT(target_name);

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// GFLOP/s of all threads together over about 0.3 s.
double measure(int num_threads) {
  constexpr int64_t kRounds = 4'000'000;
  constexpr double kSeconds = 0.3;
  std::vector<double> rates(num_threads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < num_threads; ++thread) {
    threads.emplace_back([&rates, thread] {
      volatile float sink = 0;
      double flops = 0;
      const double start = seconds_now();
      double elapsed = 0;
      for (; elapsed < kSeconds; elapsed = seconds_now() - start) {
        flops += HWY_DYNAMIC_DISPATCH(multiply_add_flops)(kRounds, &sink);
      }
      rates[thread] = flops / elapsed / 1e9;
    });
  }
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

}  // namespace strata::bench

int main(int argc, char** argv) {
  const int num_threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  if (num_threads < 1 || repeats < 1) {
    std::fprintf(stderr, "usage: fma_peak [threads >= 1] [repeats >= 1]\n");
    return 2;
  }
  double best = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) best = std::max(best, strata::bench::measure(num_threads));
  std::printf("fma_peak %d %s %.1f\n", num_threads, HWY_DYNAMIC_DISPATCH(strata::bench::target_name)(), best);
  return 0;
}
#endif  // HWY_ONCE

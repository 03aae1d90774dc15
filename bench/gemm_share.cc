// SPDX-License-Identifier: Apache-2.0
// How long the bare matrix products of one training step take, alone: the limit that a step's time is compared with.
// Plain: dnnl_sgemm on oneDNN's own OpenMP threads, the independent products of attention's heads one per thread. Gemm:
// the same through strata::kernels::gemm. One line per product: sizes, times per step, seconds of all of them in a
// step. Operands are as stored in f32, in large pages, and stay in the cache between repetitions when they fit.
//   gemm_share WORKLOAD [threads = 2]     ends with the plain seconds of a step
//   gemm_share WORKLOAD --list            sizes only; ends with the flops of a step
#include <omp.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "bench/step_products.h"
#include "strata/base/error.h"
#include "strata/device/arena.h"
#include "strata/kernels/cpu/sgemm.h"

namespace strata::bench {
namespace {

using kernels::Trans;
using kernels::Write;

constexpr int kLeastRepeats = 5;
constexpr double kLeastSeconds = 0.2;

// The operands of the independent products of one kind, one after the other.
class Operands {
 public:
  explicit Operands(const StepProduct& product)
      : product_(product),
        memory_(4 * product.parallel * (product.m * product.k + product.k * product.n + product.m * product.n)) {
    std::fill_n(data(), memory_.size_bytes() / 4, 0.5f);
  }

  float* a(int64_t index) const { return data() + index * product_.m * product_.k; }
  float* b(int64_t index) const { return a(product_.parallel) + index * product_.k * product_.n; }
  float* c(int64_t index) const { return b(product_.parallel) + index * product_.m * product_.n; }

 private:
  float* data() const { return reinterpret_cast<float*>(memory_.base()); }

  const StepProduct& product_;
  Arena memory_;
};

// dnnl_sgemm as it is: on oneDNN's own threads outside a parallel region, on the calling thread inside one.
void multiply_plain(const StepProduct& p, const Operands& operands, int64_t index) {
  kernels::sgemm({p.m, p.n, p.k}, 1.0f, {operands.a(index), p.trans_a == Trans::kYes ? p.m : p.k, p.trans_a},
                 {operands.b(index), p.trans_b == Trans::kYes ? p.k : p.n, p.trans_b},
                 p.write == Write::kAdd ? 1.0f : 0.0f, {operands.c(index), p.n});
}

void multiply_all_plain(const StepProduct& product, const Operands& operands) {
  if (product.parallel == 1) return multiply_plain(product, operands, 0);
#pragma omp parallel for schedule(static)
  for (int64_t index = 0; index < product.parallel; ++index) multiply_plain(product, operands, index);
}

void multiply_all_by_kernels(const StepProduct& p, const Operands& operands, Team& team) {
  const bool trans_a = p.trans_a == Trans::kYes, trans_b = p.trans_b == Trans::kYes;
  for (int64_t index = 0; index < p.parallel; ++index)
    kernels::gemm({team, {}}, {.a = {operands.a(index), DType::kF32, trans_a ? p.k : p.m, trans_a ? p.m : p.k},
                               .b = {operands.b(index), DType::kF32, trans_b ? p.n : p.k, trans_b ? p.k : p.n},
                               .c = {operands.c(index), DType::kF32, p.m, p.n},
                               .trans_a = p.trans_a,
                               .trans_b = p.trans_b,
                               .write = p.write});
}

// Median seconds of a call, after one that is not counted.
template <typename Call>
double median_seconds(Call&& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  call();
  for (double total = 0; total < kLeastSeconds || seconds.size() < kLeastRepeats; total += seconds.back()) {
    const Clock::time_point start = Clock::now();
    call();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

std::string shape(const StepProduct& p) {
  return fmt::format("{:<28} {}{} m {:>5} n {:>5} k {:>5}  {:>3} x {:>2}{}", p.name,
                     p.trans_a == Trans::kYes ? 'T' : 'N', p.trans_b == Trans::kYes ? 'T' : 'N', p.m, p.n, p.k, p.times,
                     p.parallel, p.counted_share < 1 ? fmt::format(" x {:.3f}", p.counted_share) : "        ");
}

void list(const BenchWorkload& workload) {
  double flops = 0;
  for (const StepProduct& product : step_products(workload)) {
    flops += product.counted_flops();
    fmt::print("{}  {:.3f} GFLOP\n", shape(product), product.counted_flops() / 1e9);
  }
  fmt::print("gemm_share {} flops {:.0f}\n", workload.name, flops);
}

void measure(const BenchWorkload& workload, int num_threads) {
  omp_set_num_threads(num_threads);
  Team team(num_threads);
  double flops = 0, plain_total = 0, gemm_total = 0;
  for (const StepProduct& product : step_products(workload)) {
    const Operands operands(product);
    const double in_a_step = static_cast<double>(product.times) * product.counted_share;
    const double plain = in_a_step * median_seconds([&] { multiply_all_plain(product, operands); });
    const double gemm = in_a_step * median_seconds([&] { multiply_all_by_kernels(product, operands, team); });
    const double gflop = product.counted_flops() / 1e9;
    fmt::print("{}  plain {:.4f} s {:5.1f} GFLOP/s  gemm {:.4f} s {:5.1f} GFLOP/s\n", shape(product), plain,
               gflop / plain, gemm, gflop / gemm);
    flops += product.counted_flops();
    plain_total += plain;
    gemm_total += gemm;
  }
  fmt::print("gemm_share {} threads {} GFLOP {:.2f} gemm seconds {:.4f} plain seconds {:.4f}\n", workload.name,
             num_threads, flops / 1e9, gemm_total, plain_total);
}

const BenchWorkload& find_workload(const std::string& name) {
  std::string known;
  for (const BenchWorkload& workload : bench_workloads()) {
    if (workload.name == name) return workload;
    known += (known.empty() ? "" : ", ") + workload.name;
  }
  throw_bad_input("no workload '{}': there are {}", name, known);
}

int parse_threads(const std::string& text) {
  int num_threads = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), num_threads);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || num_threads < 1)
    throw_bad_input("'{}' threads: a number of at least 1, or --list", text);
  return num_threads;
}

void run(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.size() > 2) throw_bad_input("usage: gemm_share WORKLOAD [threads | --list]");
  const BenchWorkload& workload = find_workload(arguments[0]);
  const std::string mode = arguments.size() == 2 ? arguments[1] : "2";
  if (mode == "--list") return list(workload);
  measure(workload, parse_threads(mode));
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) {
  try {
    strata::bench::run({argv + 1, argv + argc});
    return 0;
  } catch (const strata::Error& error) {
    fmt::print(stderr, "gemm_share: {}\n", error.what());
    return error.kind() == strata::ErrorKind::kBadInput ? 2 : 1;
  }
}

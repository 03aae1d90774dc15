// SPDX-License-Identifier: Apache-2.0
// Rates of the products: linear, attention and the head. FLOPS is useful floating-point operations per second of wall
// time: causal attention counts only the scores that are seen. The CPU column is the time of all threads together.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "strata/kernels/kernels.h"

namespace strata::kernels {
namespace {

// Memory for a matrix of ones: the time of these kernels does not depend on the values.
class Ones {
 public:
  Ones(DType dtype, int64_t rows, int64_t cols)
      : dtype_(dtype), rows_(rows), cols_(cols), memory_(rows * cols * dtype_bytes(dtype)) {
    for (int64_t i = 0; i < rows * cols; ++i)
      if (dtype == DType::kBF16)
        reinterpret_cast<BF16*>(memory_.data())[i] = to_bf16(1.0f);
      else
        reinterpret_cast<float*>(memory_.data())[i] = 1.0f;
  }
  TensorView view() { return {memory_.data(), dtype_, rows_, cols_}; }

 private:
  DType dtype_;
  int64_t rows_, cols_;
  std::vector<std::byte> memory_;
};

DType dtype_of(int64_t argument) { return argument == 0 ? DType::kF32 : DType::kBF16; }

void report(benchmark::State& state, double flops) {
  state.counters["FLOPS"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

// y (m, n) = x (m, k) * weight (n, k)^T and the two products of its backward.
void measure_linear(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2), direction = state.range(3);
  const DType dtype = dtype_of(state.range(4));
  Team team(static_cast<int>(state.range(5)));
  Ones x(dtype, m, k), weight(dtype, n, k), y(dtype, m, n), dweight(DType::kF32, n, k);
  std::vector<std::byte> scratch(
      gemm_scratch_bytes(dtype, std::max(m, n), std::max(n, k), std::max({m, n, k}), team.num_threads()));
  const Context context{team, scratch};
  for (auto _ : state) {
    if (direction == 0) linear_forward(context, x.view(), weight.view(), {}, y.view());
    if (direction == 1) linear_backward_input(context, y.view(), weight.view(), x.view());
    if (direction == 2) linear_backward_weight(context, y.view(), x.view(), dweight.view(), {}, Write::kAdd);
  }
  report(state, 2.0 * static_cast<double>(m * n * k));
}
BENCHMARK(measure_linear)
    ->Name("linear")
    ->ArgNames({"m", "n", "k", "direction", "bf16", "threads"})
    ->ArgsProduct({{2048}, {1152}, {384}, {0, 1, 2}, {0, 1}, {1, 2}})
    ->ArgsProduct({{2048}, {384}, {1536}, {0, 1, 2}, {0, 1}, {1, 2}})
    ->ArgsProduct({{1024}, {3072}, {768}, {0, 1, 2}, {0, 1}, {1, 2}})
    ->ArgsProduct({{256}, {50257}, {768}, {0, 1, 2}, {0, 1}, {1, 2}})
    ->ArgsProduct({{1}, {3072}, {768}, {0}, {0, 1}, {1, 2}})
    ->MeasureProcessCPUTime()
    ->UseRealTime();

struct AttentionProblem {
  AttentionProblem(int64_t seq, DType dtype, int threads)
      : team(threads),
        scratch(attention_scratch_bytes(dtype, kHeadDim, seq, threads)),
        qkv(dtype, kTokens, 3 * kHeads * kHeadDim),
        gradient(dtype, kTokens, 3 * kHeads * kHeadDim),
        out(dtype, kTokens, kHeads * kHeadDim),
        dout(dtype, kTokens, kHeads * kHeadDim),
        lse(DType::kF32, kTokens, kHeads) {
    for (int64_t begin = 0; begin <= kTokens; begin += seq) offsets.push_back(static_cast<int32_t>(begin));
  }

  TensorView part(Ones& of, int64_t index) {
    return of.view().slice_cols(index * kHeads * kHeadDim, kHeads * kHeadDim);
  }
  AttentionArgs args() const { return {kHeads, kHeads, kHeadDim, offsets, offsets, {}}; }

  static constexpr int64_t kTokens = 2048, kHeads = 6, kHeadDim = 64;
  Team team;
  std::vector<std::byte> scratch;
  Ones qkv, gradient, out, dout, lse;
  std::vector<int32_t> offsets;
};

// `products` of 2 * head_dim operations for every score that is seen.
double attention_flops(int64_t seq, int products) {
  const int64_t seen = AttentionProblem::kTokens * (seq + 1) / 2;
  return 2.0 * products * static_cast<double>(seen * AttentionProblem::kHeads * AttentionProblem::kHeadDim);
}

void measure_forward(benchmark::State& state) {
  AttentionProblem p(state.range(0), dtype_of(state.range(1)), static_cast<int>(state.range(2)));
  for (auto _ : state)
    attention_forward({p.team, p.scratch}, p.args(), p.part(p.qkv, 0), p.part(p.qkv, 1), p.part(p.qkv, 2), p.out.view(),
                      p.lse.view());
  report(state, attention_flops(state.range(0), 2));
}
BENCHMARK(measure_forward)
    ->Name("attention_forward")
    ->ArgNames({"seq", "bf16", "threads"})
    ->ArgsProduct({{256, 512, 1024}, {0, 1}, {1, 2}})
    ->MeasureProcessCPUTime()
    ->UseRealTime();

void measure_backward(benchmark::State& state) {
  AttentionProblem p(state.range(0), dtype_of(state.range(1)), static_cast<int>(state.range(2)));
  for (auto _ : state)
    attention_backward({p.team, p.scratch}, p.args(), p.part(p.qkv, 0), p.part(p.qkv, 1), p.part(p.qkv, 2),
                       p.out.view(), p.lse.view(), p.dout.view(), p.part(p.gradient, 0), p.part(p.gradient, 1),
                       p.part(p.gradient, 2));
  report(state, attention_flops(state.range(0), 5));
}
BENCHMARK(measure_backward)
    ->Name("attention_backward")
    ->ArgNames({"seq", "bf16", "threads"})
    ->ArgsProduct({{256, 512, 1024}, {0, 1}, {1, 2}})
    ->MeasureProcessCPUTime()
    ->UseRealTime();

void measure_head(benchmark::State& state) {
  constexpr int64_t kTokens = 1024, kVocab = 50257, kHidden = 768, kTile = 256;
  const DType dtype = dtype_of(state.range(0));
  Team team(static_cast<int>(state.range(1)));
  Ones x(dtype, kTokens, kHidden), weight(dtype, kVocab, kHidden), dx(dtype, kTokens, kHidden),
      dweight(DType::kF32, kVocab, kHidden);
  std::vector<std::byte> scratch(head_scratch_bytes(dtype, kTile, kHidden, kVocab, team.num_threads()));
  const std::vector<int32_t> targets(kTokens, 1);
  double loss = 0;
  for (auto _ : state)
    head_forward_backward({team, scratch}, {targets, kTile}, 1.0f, x.view(), weight.view(), &loss, dx.view(),
                          dweight.view(), Write::kAdd);
  report(state, 6.0 * static_cast<double>(kTokens * kVocab * kHidden));
}
BENCHMARK(measure_head)
    ->Name("head")
    ->ArgNames({"bf16", "threads"})
    ->ArgsProduct({{0, 1}, {1, 2}})
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace strata::kernels

BENCHMARK_MAIN();

// SPDX-License-Identifier: Apache-2.0
// Memory traffic of the elementwise kernels: bytes_per_second counts each operand once. Arguments: threads, and 0 for
// f32 or 1 for bf16 storage. Compare with "copy", the same count for the library's memcpy.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "strata/kernels/kernels.h"

namespace strata::kernels {
namespace {

constexpr int64_t kTokens = 4096, kHidden = 768;  // 12 MiB in f32
constexpr int64_t kParameters = 8 << 20;

class Buffer {
 public:
  Buffer(DType dtype, int64_t rows, int64_t cols)
      : memory_(rows * cols * dtype_bytes(dtype)), view_(memory_.data(), dtype, rows, cols) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < cols; ++col) {
        const float value = static_cast<float>((row * 37 + col * 11) % 97) / 32 - 1.5f;
        if (dtype == DType::kF32)
          view_.row<float>(row)[col] = value;
        else
          view_.row<BF16>(row)[col] = to_bf16(value);
      }
  }
  const TensorView& view() const { return view_; }
  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }

 private:
  std::vector<std::byte> memory_;
  TensorView view_;
};

struct Setup {
  explicit Setup(benchmark::State& state)
      : state(state), team(static_cast<int>(state.range(0))), dtype(state.range(1) == 0 ? DType::kF32 : DType::kBF16) {}
  Context context() { return {team, {}}; }
  Buffer activations(int64_t cols = kHidden) const { return {dtype, kTokens, cols}; }

  template <typename Body>
  void measure(int64_t bytes, Body body) {
    for (auto _ : state) {
      body();
      benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * bytes);
  }

  benchmark::State& state;
  Team team;
  DType dtype;
};

void copy(benchmark::State& state) {
  Setup setup(state);
  const Buffer from = setup.activations(), to = setup.activations();
  setup.measure(2 * from.bytes(), [&] { convert(setup.context(), from.view(), to.view()); });
}

void narrow(benchmark::State& state) {
  Setup setup(state);
  const Buffer from(DType::kF32, kTokens, kHidden), to(DType::kBF16, kTokens, kHidden);
  setup.measure(from.bytes() + to.bytes(), [&] { convert(setup.context(), from.view(), to.view()); });
}

void norm_forward(benchmark::State& state) {
  Setup setup(state);
  const Buffer x = setup.activations(), y = setup.activations(), weight(setup.dtype, 1, kHidden),
               stats(DType::kF32, kTokens, 2);
  setup.measure(2 * x.bytes(), [&] {
    norm_forward(setup.context(), NormKind::kLayerNorm, 1e-5f, x.view(), weight.view(), weight.view(), y.view(),
                 stats.view());
  });
}

void norm_backward_input(benchmark::State& state) {
  Setup setup(state);
  const Buffer x = setup.activations(), dy = setup.activations(), dx = setup.activations(),
               weight(setup.dtype, 1, kHidden);
  const Buffer stats(DType::kF32, kTokens, 2);
  setup.measure(4 * x.bytes(), [&] {
    norm_backward_input(setup.context(), NormKind::kLayerNorm, dy.view(), x.view(), weight.view(), stats.view(),
                        dx.view(), dx.view());
  });
}

void norm_backward_weight(benchmark::State& state) {
  Setup setup(state);
  const Buffer x = setup.activations(), dy = setup.activations(), stats(DType::kF32, kTokens, 2);
  const Buffer dweight(DType::kF32, 1, kHidden), dbias(DType::kF32, 1, kHidden);
  setup.measure(2 * x.bytes(), [&] {
    norm_backward_weight(setup.context(), NormKind::kLayerNorm, dy.view(), x.view(), stats.view(), dweight.view(),
                         dbias.view(), Write::kSet);
  });
}

template <ActivationKind kKind>
void activation_forward(benchmark::State& state) {
  Setup setup(state);
  const Buffer pre = setup.activations(kKind == ActivationKind::kSwiglu ? 2 * kHidden : kHidden),
               act = setup.activations();
  setup.measure(pre.bytes() + act.bytes(), [&] { activation_forward(setup.context(), kKind, pre.view(), act.view()); });
}

template <ActivationKind kKind>
void activation_backward(benchmark::State& state) {
  Setup setup(state);
  const int64_t width = kKind == ActivationKind::kSwiglu ? 2 * kHidden : kHidden;
  const Buffer pre = setup.activations(width), dpre = setup.activations(width), dact = setup.activations();
  setup.measure(2 * pre.bytes() + dact.bytes(),
                [&] { activation_backward(setup.context(), kKind, dact.view(), pre.view(), dpre.view()); });
}

void add_residual(benchmark::State& state, float rate) {
  Setup setup(state);
  const Buffer x = setup.activations(), residual = setup.activations(), y = setup.activations();
  std::vector<int64_t> tokens(kTokens);
  for (int64_t i = 0; i < kTokens; ++i) tokens[i] = i;
  setup.measure(3 * x.bytes(), [&] {
    add_residual(setup.context(), {rate, 7, tokens}, x.view(), residual.view(), y.view());
  });
}

void rope(benchmark::State& state) {
  Setup setup(state);
  const Buffer qkv = setup.activations(3 * kHidden);
  std::vector<int32_t> positions(kTokens);
  for (int64_t i = 0; i < kTokens; ++i) positions[i] = static_cast<int32_t>(i);
  const RopeArgs args = {.heads = kHidden / 64, .kv_heads = kHidden / 64, .head_dim = 64};
  setup.measure(2 * qkv.bytes() * 2 / 3, [&] { rope(setup.context(), args, positions, qkv.view()); });
}

void embedding_backward(benchmark::State& state) {
  Setup setup(state);
  const Buffer dx = setup.activations(), dtoken(DType::kF32, 8192, kHidden), dposition(DType::kF32, 1024, kHidden);
  std::vector<int32_t> ids(kTokens), positions(kTokens);
  for (int64_t i = 0; i < kTokens; ++i) {
    ids[i] = static_cast<int32_t>(i * 7919 % 8192);
    positions[i] = static_cast<int32_t>(i % 1024);
  }
  setup.measure(dx.bytes() + 4 * kTokens * kHidden * 4, [&] {
    embedding_backward(setup.context(), ids, positions, dx.view(), {}, dtoken.view(), dposition.view(), Write::kAdd,
                       Write::kAdd);
  });
}

void sum_of_squares(benchmark::State& state) {
  Setup setup(state);
  const Buffer x(DType::kF32, 1, kParameters);
  setup.measure(x.bytes(), [&] { benchmark::DoNotOptimize(sum_of_squares(setup.context(), x.view())); });
}

void adamw(benchmark::State& state) {
  Setup setup(state);
  const Buffer gradient(DType::kF32, 1, kParameters), master(DType::kF32, 1, kParameters),
      m(DType::kF32, 1, kParameters);
  const Buffer v(DType::kF32, 1, kParameters), rounded(setup.dtype, 1, kParameters);
  std::memset(v.view().data, 0, static_cast<size_t>(v.bytes()));
  const bool bf16 = setup.dtype == DType::kBF16;
  const AdamWArgs args = {.lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.1f};
  setup.measure(7 * gradient.bytes() + (bf16 ? rounded.bytes() : 0), [&] {
    adamw(setup.context(), args, gradient.view(), master.view(), m.view(), v.view(),
          bf16 ? rounded.view() : master.view());
  });
}

void arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads", "bf16"})->ArgsProduct({{1, 2}, {0, 1}})->UseRealTime()->MinTime(0.1);
}

BENCHMARK(copy)->Apply(arguments);
BENCHMARK(narrow)->Apply(arguments);
BENCHMARK(norm_forward)->Apply(arguments);
BENCHMARK(norm_backward_input)->Apply(arguments);
BENCHMARK(norm_backward_weight)->Apply(arguments);
BENCHMARK(activation_forward<ActivationKind::kGeluTanh>)->Name("gelu_tanh_forward")->Apply(arguments);
BENCHMARK(activation_backward<ActivationKind::kGeluTanh>)->Name("gelu_tanh_backward")->Apply(arguments);
BENCHMARK(activation_forward<ActivationKind::kGeluExact>)->Name("gelu_exact_forward")->Apply(arguments);
BENCHMARK(activation_forward<ActivationKind::kSwiglu>)->Name("swiglu_forward")->Apply(arguments);
BENCHMARK(activation_backward<ActivationKind::kSwiglu>)->Name("swiglu_backward")->Apply(arguments);
BENCHMARK_CAPTURE(add_residual, plain, 0.0f)->Apply(arguments);
BENCHMARK_CAPTURE(add_residual, dropout, 0.1f)->Apply(arguments);
BENCHMARK(rope)->Apply(arguments);
BENCHMARK(embedding_backward)->Apply(arguments);
BENCHMARK(sum_of_squares)->Apply(arguments);
BENCHMARK(adamw)->Apply(arguments);

}  // namespace
}  // namespace strata::kernels

BENCHMARK_MAIN();

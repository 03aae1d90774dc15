// SPDX-License-Identifier: Apache-2.0
// How long one rank takes to compile its step: 96 blocks of GPT-3's shape on 1024 ranks (tp 8 x pp 8 x dp 16, ZeRO 3),
// by micro-batches per step. Every rank does it before a run and when the plan changes. Run: build/bench/compile_bench
#include <benchmark/benchmark.h>

#include "strata/program/compile.h"

namespace {

strata::CompileInput large_input(int64_t accumulation) {
  strata::CompileInput input;
  strata::ModelSpec& model = input.model;
  model.family = "gpt2";
  model.vocab = 50257;
  model.hidden = 12288;
  model.num_blocks = 96;
  model.heads = model.kv_heads = 96;
  model.head_dim = 128;
  model.ffn = 4 * model.hidden;
  model.max_positions = input.seq = 2048;
  model.tied_head = false;
  input.plan = strata::single_rank_plan(model, strata::ActivationPolicy::kFull, 1, accumulation, 1);
  input.plan.num_ranks = 1024;
  input.plan.stage_layers.assign(8, 24);
  input.plan.stage_layers.back() += 2;
  for (strata::LayerPlan& layer : input.plan.layers) {
    layer.tp = 8;
    layer.dp = 16;
    layer.zero = 3;
  }
  input.rank = 300;
  return input;
}

void compile_large_model(benchmark::State& state) {
  const strata::CompileInput input = large_input(state.range(0));
  for (auto _ : state) {
    const strata::ProgramSet set = strata::compile(input, {strata::ProgramKind::kStep});
    state.counters["instructions"] = static_cast<double>(set.programs.front().instructions.size());
    state.counters["bookings"] = static_cast<double>(set.programs.front().bookings.size());
  }
}
BENCHMARK(compile_large_model)->Arg(16)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();

// SPDX-License-Identifier: Apache-2.0
#include "bench/step_products.h"

#include "strata/model/segment.h"

namespace strata::bench {
namespace {

using kernels::Trans;
using kernels::Write;

ModelSpec sizes(int64_t vocab, int64_t hidden, int64_t blocks, int64_t heads, int64_t kv_heads, int64_t ffn,
                ActivationKind activation) {
  ModelSpec model;
  model.vocab = vocab;
  model.hidden = hidden;
  model.num_blocks = blocks;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.head_dim = hidden / heads;
  model.ffn = ffn;
  model.activation = activation;
  return model;
}

// y (tokens, out) = x (tokens, in) * weight (out, in)^T and both products of its backward.
void add_linear(std::vector<StepProduct>& products, const std::string& name, int64_t tokens, int64_t out, int64_t in,
                int64_t times, Write write = Write::kSet) {
  products.push_back(
      {.name = name + " forward", .m = tokens, .n = out, .k = in, .trans_b = Trans::kYes, .times = times});
  products.push_back({.name = name + " backward input", .m = tokens, .n = in, .k = out, .times = times});
  products.push_back({.name = name + " backward weight",
                      .m = out,
                      .n = in,
                      .k = tokens,
                      .trans_a = Trans::kYes,
                      .write = write,
                      .times = times});
}

// Tiles of tokens as the head multiplies them; the second tile and later ones add to the weight's gradient.
void add_head(std::vector<StepProduct>& products, const ModelSpec& model, int64_t tokens) {
  const int64_t tile = head_tile_tokens(single_rank_plan(model, ActivationPolicy::kKeep, 1, 1, 1), model, tokens);
  const int64_t full_tiles = tokens / tile, rest = tokens % tile;
  add_linear(products, "head", tile, model.vocab, model.hidden, 1);
  if (full_tiles > 1)
    add_linear(products, "head, next tiles", tile, model.vocab, model.hidden, full_tiles - 1, Write::kAdd);
  if (rest > 0) add_linear(products, "head, last tile", rest, model.vocab, model.hidden, 1, Write::kAdd);
}

// Of one block and head: scores = q k^T and dprobabilities = dout v^T; out = probabilities v and dq = dscores k;
// dv = probabilities^T dout and dk = dscores^T q.
void add_attention(std::vector<StepProduct>& products, const BenchWorkload& workload) {
  const int64_t seq = workload.seq, head_dim = workload.model.head_dim;
  const auto add = [&](const std::string& name, int64_t n, int64_t k, Trans trans_a, Trans trans_b) {
    products.push_back({.name = name,
                        .m = seq,
                        .n = n,
                        .k = k,
                        .trans_a = trans_a,
                        .trans_b = trans_b,
                        .times = 2 * workload.model.num_blocks,
                        .parallel = workload.batch * workload.model.heads,
                        .counted_share = static_cast<double>(seq + 1) / static_cast<double>(2 * seq)});
  };
  add("attention scores", seq, head_dim, Trans::kNo, Trans::kYes);
  add("attention values", head_dim, seq, Trans::kNo, Trans::kNo);
  add("attention keys", head_dim, seq, Trans::kYes, Trans::kNo);
}

}  // namespace

std::span<const BenchWorkload> bench_workloads() {
  static const std::vector<BenchWorkload> workloads = {
      {"gpt14m", sizes(8192, 384, 6, 6, 6, 4 * 384, ActivationKind::kGeluTanh), 256, 8},
      {"gpt124m", sizes(50257, 768, 12, 12, 12, 4 * 768, ActivationKind::kGeluTanh), 512, 2},
      {"llama55m", sizes(32000, 512, 8, 8, 2, 1408, ActivationKind::kSwiglu), 1024, 2}};
  return workloads;
}

double StepProduct::counted_flops() const {
  return 2.0 * static_cast<double>(m * n * k) * static_cast<double>(times * parallel) * counted_share;
}

std::vector<StepProduct> step_products(const BenchWorkload& workload) {
  const ModelSpec& model = workload.model;
  const int64_t tokens = workload.seq * workload.batch;
  std::vector<StepProduct> products;
  add_linear(products, "qkv", tokens, model.qkv_width(), model.hidden, model.num_blocks);
  add_attention(products, workload);
  add_linear(products, "output", tokens, model.hidden, model.attended_width(), model.num_blocks);
  add_linear(products, "up", tokens, model.up_width(), model.hidden, model.num_blocks);
  add_linear(products, "down", tokens, model.hidden, model.ffn, model.num_blocks);
  add_head(products, model, tokens);
  return products;
}

}  // namespace strata::bench

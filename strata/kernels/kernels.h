// SPDX-License-Identifier: Apache-2.0
// Maths on views. Every function here exists twice with one signature: strata::kernels (cpu/, fast, run-time dispatch)
// and strata::kernels::ref (ref/, plain loops, the truth). All complete when they return; called by the one thread that
// owns the context's team. Nothing here allocates except oneDNN's own packing buffers; scratch comes from the caller.
//
// Conventions: activations are (tokens, channels), weights (out, in), vectors (1, n). Storage is f32 or bf16,
// arithmetic and every accumulation f32. Parameter gradients are always f32 and are `set` or `add`ed. Zero tokens are
// legal everywhere: outputs of a `set` gradient are then zero. An empty parameter gradient is not computed. A shape
// mismatch is a bug (STRATA_CHECK). Results do not depend on the number of threads except where a sum runs over tokens
// into a parameter gradient.
#pragma once

#include <cstdint>
#include <span>

#include "strata/device/cpu/team.h"
#include "strata/spec/model_spec.h"
#include "strata/tensor/tensor.h"

namespace strata::kernels {

struct Context {
  Team& team;
  std::span<std::byte> scratch;  // planned; each function's *_scratch_bytes says how much it needs
};

enum class Write { kSet, kAdd };
enum class Trans { kNo, kYes };

// ---- matrix product -------------------------------------------------------------------------------------------------
// c (m, n) = or += op(a) (m, k) * op(b) (k, n). a and b share a dtype; c is f32, or bf16 when a is bf16 (then only
// kSet, rounded once from the f32 sum). bf16 uses native products where the CPU has them, else converts tiles into
// scratch.
struct GemmArgs {
  TensorView a;
  TensorView b;
  TensorView c;
  Trans trans_a = Trans::kNo;
  Trans trans_b = Trans::kNo;
  Write write = Write::kSet;
};
void gemm(const Context& context, const GemmArgs& args);
// Scratch for any product with at most these sizes and this storage dtype on `num_threads` threads; 0 for f32.
int64_t gemm_scratch_bytes(DType dtype, int64_t m, int64_t n, int64_t k, int num_threads);

// y (tokens, out) = x (tokens, in) * weight^T + bias; bias may be empty.
void linear_forward(const Context&, const TensorView& x, const TensorView& weight, const TensorView& bias,
                    const TensorView& y);
// dx (tokens, in) = dy * weight
void linear_backward_input(const Context&, const TensorView& dy, const TensorView& weight, const TensorView& dx);
// dweight (out, in) = or += dy^T * x; dbias (1, out) = or += column sums of dy. x is read for dweight alone.
void linear_backward_weight(const Context&, const TensorView& dy, const TensorView& x, const TensorView& dweight,
                            const TensorView& dbias, Write write);

// ---- normalisation --------------------------------------------------------------------------------------------------
// y = (x - mean) * rstd * weight + bias (LayerNorm) or x * rstd * weight (RMSNorm; bias empty).
// stats (tokens, 2) f32 receives mean, rstd (mean is 0 for RMSNorm). Two-pass variance.
void norm_forward(const Context&, NormKind kind, float eps, const TensorView& x, const TensorView& weight,
                  const TensorView& bias, const TensorView& y, const TensorView& stats);
// y again from saved stats: bit-equal to norm_forward's y.
void norm_apply(const Context&, NormKind kind, const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& stats, const TensorView& y);
// dx = residual + d(norm)/dx applied to dy; `residual` (tokens, hidden) may be empty. dx must not alias dy; may alias
// residual.
void norm_backward_input(const Context&, NormKind kind, const TensorView& dy, const TensorView& x,
                         const TensorView& weight, const TensorView& stats, const TensorView& residual,
                         const TensorView& dx);
// dweight, dbias (1, hidden) f32 set or added; dbias empty for RMSNorm. Nothing is read for none.
void norm_backward_weight(const Context&, NormKind kind, const TensorView& dy, const TensorView& x,
                          const TensorView& stats, const TensorView& dweight, const TensorView& dbias, Write write);

// ---- elementwise ----------------------------------------------------------------------------------------------------
// act (tokens, ffn) from pre (tokens, ffn), or (tokens, 2*ffn) = [gate | up] for SwiGLU: silu(gate) * up.
void activation_forward(const Context&, ActivationKind kind, const TensorView& pre, const TensorView& act);
// dpre from dact and pre.
void activation_backward(const Context&, ActivationKind kind, const TensorView& dact, const TensorView& pre,
                         const TensorView& dpre);

// Dropout keeps an element when a uniform number is >= rate and scales it by 1 / (1 - rate). The number depends on
// (key, tokens[row], column) only: key names seed, step, layer and site; tokens the global index of each token in the
// step.
struct Dropout {
  float rate = 0.0f;  // 0: no dropout
  uint64_t key = 0;
  std::span<const int64_t> tokens;
};
// y = dropout(x); y may alias x. Its own backward: dx = dropout(dy) with the same key.
void dropout(const Context&, const Dropout& dropout, const TensorView& x, const TensorView& y);
// y = residual + dropout(x); y may alias x or residual.
void add_residual(const Context&, const Dropout& dropout, const TensorView& x, const TensorView& residual,
                  const TensorView& y);

// In place on the q and k heads of qkv (tokens, (heads + 2*kv_heads) * head_dim), Hugging Face's half-split convention:
// the pair (i, i + head_dim/2) turns by positions[token] * theta^(-2i/head_dim). direction -1 is the exact inverse
// (backward).
struct RopeArgs {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  float theta = 10000.0f;
  int direction = 1;
};
void rope(const Context&, const RopeArgs& args, std::span<const int32_t> positions, const TensorView& qkv);

// Rows [first, first + rows.rows) of a table of num_rows, or of its gradient. A whole table is its only part.
struct TablePart {
  TensorView rows;  // empty: there is no table
  int64_t first = 0;
  int64_t num_rows = 0;
  TablePart(const TensorView& table) : rows(table), num_rows(table.rows) {}
  TablePart(const TensorView& part, int64_t first_row, int64_t table_rows)
      : rows(part), first(first_row), num_rows(table_rows) {}
};

// x (tokens, hidden) = dropout(token_table[ids] + position_table[positions]); position_table empty for RoPE models.
// Rows that are in no part count as zero: the sum of x over all parts is that of whole tables.
void embedding_forward(const Context&, std::span<const int32_t> ids, std::span<const int32_t> positions,
                       const TablePart& token_table, const TablePart& position_table, const Dropout& dropout,
                       const TensorView& x);
// dtoken and dposition: the same rows of the gradients, f32. kSet zeroes them first. Deterministic for any thread
// count: threads split channels, tokens are added in order. dx is modified in place by dropout.
void embedding_backward(const Context&, std::span<const int32_t> ids, std::span<const int32_t> positions,
                        const TensorView& dx, const Dropout& dropout, const TablePart& dtoken,
                        const TablePart& dposition, Write write_token, Write write_position);

// Copies with conversion between f32 and bf16 (round to nearest even); same shape.
void convert(const Context&, const TensorView& from, const TensorView& to);

// ---- attention core -------------------------------------------------------------------------------------------------
// Softmax attention over packed sequences (flash style, tiles of scores, never whole rows in memory): causal inside a
// sequence. q (tokens_q, heads*head_dim), k and v (tokens_kv, kv_heads*head_dim), usually column slices of one qkv
// buffer. Sequence s owns q rows [q_offsets[s], q_offsets[s+1]) and kv rows [kv_offsets[s], kv_offsets[s+1]); its
// queries are the last ones of its kv rows: query i of n sees the first (kv_length - n + i + 1) keys. For training both
// offset lists are equal; generation has fewer queries than keys (KV cache). Scores are scaled by 1/sqrt(head_dim).
struct AttentionArgs {
  int64_t heads = 0;
  int64_t kv_heads = 0;  // heads is a multiple; query head h reads kv head h / (heads / kv_heads)
  int64_t head_dim = 0;
  std::span<const int32_t> q_offsets;
  std::span<const int32_t> kv_offsets;
  // On the probabilities; the column of the counter is (first_head + head) * 2^32 + key index inside the sequence.
  Dropout dropout;
  int64_t first_head = 0;  // of the whole model's query heads, where these are a part
  // Context parallelism: queries and keys are `pieces` pieces each of every sequence. Offsets are then those of pieces,
  // sequence after sequence, and positions give each piece's first position inside its sequence: a query sees the keys
  // at its own position and before. Without positions there is one piece, and queries are the last ones of the keys.
  int64_t pieces = 1;
  std::span<const int32_t> q_positions = {};
  std::span<const int32_t> kv_positions = {};
  // kAdd: forward combines with what out and lse hold of other keys, backward adds into dq, dk and dv, which are f32.
  Write write = Write::kSet;
};
// out (tokens_q, heads*head_dim), in the storage of q or f32; lse (tokens_q, heads) f32: log of the sum of exp of the
// scaled scores. A query that sees no key has out 0 and lse -infinity.
void attention_forward(const Context&, const AttentionArgs& args, const TensorView& q, const TensorView& k,
                       const TensorView& v, const TensorView& out, const TensorView& lse);
// dq, dk, dv in the storage of q or f32; out and lse are those over all keys of the sequence. Deterministic for any
// thread count (work is split by sequence and kv head).
void attention_backward(const Context&, const AttentionArgs& args, const TensorView& q, const TensorView& k,
                        const TensorView& v, const TensorView& out, const TensorView& lse, const TensorView& dout,
                        const TensorView& dq, const TensorView& dk, const TensorView& dv);
int64_t attention_scratch_bytes(DType dtype, int64_t head_dim, int64_t max_seq, int num_threads);

// ---- head and loss --------------------------------------------------------------------------------------------------
// Logits of x (tokens, hidden) against weight (vocab, hidden) and cross-entropy with targets (-1: not counted), in
// tiles of tokens: the whole logits never exist. loss_sum (double) += sum over counted tokens of the negative log
// probability.
struct HeadArgs {
  std::span<const int32_t> targets;  // one per token
  int64_t tile_tokens = 256;
};
void head_forward(const Context&, const HeadArgs& args, const TensorView& x, const TensorView& weight,
                  double* loss_sum);
// Loss as above, and dx (tokens, hidden) = gradient_scale * d(loss_sum)/dx, dweight (vocab, hidden) f32 set or added.
void head_forward_backward(const Context&, const HeadArgs& args, float gradient_scale, const TensorView& x,
                           const TensorView& weight, double* loss_sum, const TensorView& dx, const TensorView& dweight,
                           Write write);
// logits (tokens, vocab) f32, for generation.
void head_logits(const Context&, const TensorView& x, const TensorView& weight, const TensorView& logits);
int64_t head_scratch_bytes(DType dtype, int64_t tile_tokens, int64_t hidden, int64_t vocab, int num_threads);

// The same for one tile of tokens and a part of the vocabulary, in two functions with an exchange between: statistics
// of every part, then loss and gradients from those of all parts.
struct HeadTile {
  std::span<const int32_t> targets;  // one per token of the tile; -1: not counted
  int64_t first_word = 0;            // of the rows of `weight`
  int64_t num_words = 0;             // of the whole vocabulary
};
constexpr int64_t kHeadStatistics = 3;
// logits (tokens, words) f32. statistics (tokens, 3) f32: the largest logit, the sum of exp(logit - largest), and the
// target's logit where it is one of these words (else 0). Not set for tokens that do not count.
void head_statistics(const Context&, const HeadTile& tile, const TensorView& x, const TensorView& weight,
                     const TensorView& logits, const TensorView& statistics);
// From the statistics of all parts (parts * tokens, 3), one part after the other: the loss of whole logits.
void head_loss(const HeadTile& tile, const TensorView& statistics, double* loss_sum);
// dx (tokens, hidden) = this part's share of gradient_scale * d(loss_sum)/dx, dweight (words, hidden) f32 set or added.
// Logits are overwritten.
void head_gradients(const Context&, const HeadTile& tile, float gradient_scale, const TensorView& x,
                    const TensorView& weight, const TensorView& logits, const TensorView& statistics,
                    const TensorView& dx, const TensorView& dweight, Write write);
int64_t head_tile_scratch_bytes(DType dtype, int64_t tile_tokens, int64_t hidden, int64_t words, int num_threads);

// ---- parameters -----------------------------------------------------------------------------------------------------
// Sum of squares of one f32 vector in a fixed order (double partial sums over fixed blocks, independent of the
// threads). Non-finite input gives a non-finite result.
double sum_of_squares(const Context&, const TensorView& x);

// One AdamW step on a contiguous run of elements (decoupled decay, bias-corrected; Loshchilov & Hutter, ICLR'19):
//   g = gradient * gradient_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2
//   w = w (1 - lr decay) - lr (m / (1 - b1^step)) / (sqrt(v / (1 - b2^step)) + eps)
// master, m, v, gradient are f32. weight is the compute copy: the same memory as master in f32, bf16 otherwise
// (rounded).
struct AdamWArgs {
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0, decay = 0, gradient_scale = 1;
  int64_t step = 1;  // 1-based
};
void adamw(const Context&, const AdamWArgs& args, const TensorView& gradient, const TensorView& master,
           const TensorView& m, const TensorView& v, const TensorView& weight);
// momentum_buffer empty when momentum is 0: buf = momentum buf + g; w = w - lr (buf + decay w).
struct SgdArgs {
  float lr = 0, momentum = 0, decay = 0, gradient_scale = 1;
};
void sgd(const Context&, const SgdArgs& args, const TensorView& gradient, const TensorView& master,
         const TensorView& momentum_buffer, const TensorView& weight);

}  // namespace strata::kernels

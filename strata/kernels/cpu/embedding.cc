// SPDX-License-Identifier: Apache-2.0
// Token and position tables: gather forward, scatter-add backward.
#include "strata/kernels/cpu/dropout_state.h"
#include "strata/kernels/cpu/shapes.h"
#include "strata/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/kernels/cpu/embedding.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "strata/kernels/cpu/dropout-inl.h"
#include "strata/kernels/cpu/simd-inl.h"

#ifndef STRATA_KERNELS_CPU_EMBEDDING_ARGS
#define STRATA_KERNELS_CPU_EMBEDDING_ARGS
namespace strata::kernels {

struct EmbeddingArgs {
  const int32_t* ids = nullptr;
  const int32_t* positions = nullptr;
  TensorView token_table;     // or its gradient, which may be empty
  TensorView position_table;  // or its gradient; may be empty
  TensorView x;               // or its gradient
};

}  // namespace strata::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
void gather_rows_of(const EmbeddingArgs& args, const DropoutState& state, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* token = args.token_table.row<T>(args.ids[row]);
    const T* position = args.position_table.empty() ? nullptr : args.position_table.row<T>(args.positions[row]);
    T* x = args.x.row<T>(row);
    for_each_dropped(state, row, args.x.cols, [&](auto d, int64_t c, auto factor) HWY_ATTR {
      auto sum = load(d, token + c);
      if (position != nullptr) sum = hn::Add(sum, load(d, position + c));
      store(d, hn::Mul(sum, factor), x + c);
    });
  }
}

// Adds channels [begin, end) of every token, in order.
template <typename T>
void scatter_channels_of(const EmbeddingArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = 0; row < args.x.rows; ++row) {
    const T* x = args.x.row<T>(row) + begin;
    float* token = args.token_table.empty() ? nullptr : args.token_table.row<float>(args.ids[row]) + begin;
    float* position =
        args.position_table.empty() ? nullptr : args.position_table.row<float>(args.positions[row]) + begin;
    for_each_vector(end - begin, [&](auto d, int64_t c) HWY_ATTR {
      const auto gradient = load(d, x + c);
      if (token != nullptr) store(d, hn::Add(load(d, token + c), gradient), token + c);
      if (position != nullptr) store(d, hn::Add(load(d, position + c), gradient), position + c);
    });
  }
}

void gather_rows(const EmbeddingArgs& args, const DropoutState& state, int64_t begin, int64_t end) {
  args.x.dtype == DType::kBF16 ? gather_rows_of<BF16>(args, state, begin, end)
                               : gather_rows_of<float>(args, state, begin, end);
}

void scatter_channels(const EmbeddingArgs& args, int64_t begin, int64_t end) {
  args.x.dtype == DType::kBF16 ? scatter_channels_of<BF16>(args, begin, end)
                               : scatter_channels_of<float>(args, begin, end);
}

}  // namespace
}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
namespace {

HWY_EXPORT(gather_rows);
HWY_EXPORT(scatter_channels);

void check_indices(const char* name, std::span<const int32_t> indices, int64_t rows, int64_t limit) {
  STRATA_CHECK(static_cast<int64_t>(indices.size()) == rows, "{} {}s for {} tokens", indices.size(), name, rows);
  for (const int32_t index : indices)
    STRATA_CHECK(index >= 0 && index < limit, "{} {} of a table of {}", name, index, limit);
}

void check_tables(const EmbeddingArgs& args, std::span<const int32_t> ids, std::span<const int32_t> positions,
                  DType dtype) {
  check_storage("embedding x", args.x);
  if (!args.token_table.empty()) {
    check_view("token table", args.token_table, args.token_table.rows, args.x.cols, dtype);
    check_indices("token id", ids, args.x.rows, args.token_table.rows);
  }
  if (args.position_table.empty()) return;
  check_view("position table", args.position_table, args.position_table.rows, args.x.cols, dtype);
  check_indices("position", positions, args.x.rows, args.position_table.rows);
}

void clear_table(Team& team, const TensorView& table) {
  for_row_parts(team, table.rows, table.cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) std::fill_n(table.row<float>(row), table.cols, 0.0f);
  });
}

}  // namespace

void embedding_forward(const Context& context, std::span<const int32_t> ids, std::span<const int32_t> positions,
                       const TensorView& token_table, const TensorView& position_table, const Dropout& dropout,
                       const TensorView& x) {
  const EmbeddingArgs args = {ids.data(), positions.data(), token_table, position_table, x};
  check_tables(args, ids, positions, x.dtype);
  const DropoutState state = make_dropout_state(dropout, x.rows);
  for_row_parts(context.team, x.rows, x.cols, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gather_rows)(args, state, begin, end);
  });
}

void embedding_backward(const Context& context, std::span<const int32_t> ids, std::span<const int32_t> positions,
                        const TensorView& dx, const Dropout& dropout, const TensorView& dtoken,
                        const TensorView& dposition, Write write_token, Write write_position) {
  const EmbeddingArgs args = {ids.data(), positions.data(), dtoken, dposition, dx};
  check_tables(args, ids, positions, DType::kF32);
  kernels::dropout(context, dropout, dx, dx);
  if (write_token == Write::kSet && !dtoken.empty()) clear_table(context.team, dtoken);
  if (write_position == Write::kSet && !dposition.empty()) clear_table(context.team, dposition);
  context.team.parallel_for(dx.cols, part_grain(dx.rows, 16), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(scatter_channels)(args, begin, end);
  });
}

}  // namespace strata::kernels
#endif

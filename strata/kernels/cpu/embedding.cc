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
  TablePart token_table;     // or its gradient
  TablePart position_table;  // or its gradient
  TensorView x;              // or its gradient
};

// Row `index` of the whole table; null where it is in another part.
template <typename T>
T* find_row(const TablePart& table, const int32_t* indices, int64_t token) {
  if (table.rows.empty()) return nullptr;
  const int64_t row = indices[token] - table.first;
  return row >= 0 && row < table.rows.rows ? table.rows.row<T>(row) : nullptr;
}

}  // namespace strata::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
void gather_rows_of(const EmbeddingArgs& args, const DropoutState& state, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* token = find_row<T>(args.token_table, args.ids, row);
    const T* position = find_row<T>(args.position_table, args.positions, row);
    T* x = args.x.row<T>(row);
    for_each_dropped(state, row, args.x.cols, [&](auto d, int64_t c, auto factor) HWY_ATTR {
      auto sum = token == nullptr ? hn::Zero(d) : load(d, token + c);
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
    for (float* target : {find_row<float>(args.token_table, args.ids, row),
                          find_row<float>(args.position_table, args.positions, row)}) {
      if (target == nullptr) continue;
      for_each_vector(end - begin, [&](auto d, int64_t c) HWY_ATTR {
        float* const sum = target + begin + c;
        store(d, hn::Add(load(d, sum), load(d, x + c)), sum);
      });
    }
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

void check_table(const char* name, const TablePart& table, int64_t cols, DType dtype) {
  check_view(name, table.rows, table.rows.rows, cols, dtype);
  STRATA_CHECK(table.first >= 0 && table.first + table.rows.rows <= table.num_rows, "{} rows from {} on of a {} of {}",
               table.rows.rows, table.first, name, table.num_rows);
}

void check_tables(const EmbeddingArgs& args, std::span<const int32_t> ids, std::span<const int32_t> positions,
                  DType dtype) {
  check_storage("embedding x", args.x);
  if (!args.token_table.rows.empty()) {
    check_table("token table", args.token_table, args.x.cols, dtype);
    check_indices("token id", ids, args.x.rows, args.token_table.num_rows);
  }
  if (args.position_table.rows.empty()) return;
  check_table("position table", args.position_table, args.x.cols, dtype);
  check_indices("position", positions, args.x.rows, args.position_table.num_rows);
}

void clear_table(Team& team, const TensorView& table) {
  for_row_parts(team, table.rows, table.cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) std::fill_n(table.row<float>(row), table.cols, 0.0f);
  });
}

}  // namespace

void embedding_forward(const Context& context, std::span<const int32_t> ids, std::span<const int32_t> positions,
                       const TablePart& token_table, const TablePart& position_table, const Dropout& dropout,
                       const TensorView& x) {
  const EmbeddingArgs args = {ids.data(), positions.data(), token_table, position_table, x};
  check_tables(args, ids, positions, x.dtype);
  const DropoutState state = make_dropout_state(dropout, x.rows);
  for_row_parts(context.team, x.rows, x.cols, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gather_rows)(args, state, begin, end);
  });
}

void embedding_backward(const Context& context, std::span<const int32_t> ids, std::span<const int32_t> positions,
                        const TensorView& dx, const Dropout& dropout, const TablePart& dtoken,
                        const TablePart& dposition, Write write_token, Write write_position) {
  const EmbeddingArgs args = {ids.data(), positions.data(), dtoken, dposition, dx};
  check_tables(args, ids, positions, DType::kF32);
  kernels::dropout(context, dropout, dx, dx);
  if (write_token == Write::kSet && !dtoken.rows.empty()) clear_table(context.team, dtoken.rows);
  if (write_position == Write::kSet && !dposition.rows.empty()) clear_table(context.team, dposition.rows);
  context.team.parallel_for(dx.cols, part_grain(dx.rows, 16), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(scatter_channels)(args, begin, end);
  });
}

}  // namespace strata::kernels
#endif

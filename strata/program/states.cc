// SPDX-License-Identifier: Apache-2.0
#include "strata/base/error.h"
#include "strata/program/expand.h"
#include "strata/spec/batch_sheet.h"
#include "strata/spec/step_scalars.h"

namespace strata {
namespace {

constexpr int64_t kLine = 64;

class StateBooker {
 public:
  StateBooker(const CompileInput& input, const std::vector<LayerDecl>& layers, std::vector<Booking>& bookings)
      : input_(input), layers_(layers), bookings_(bookings) {}

  int book(std::string name, int64_t bytes, BookingKind kind) {
    bookings_.push_back({std::move(name), bytes, kind, Tier::kDevice, true, -1});
    return static_cast<int>(bookings_.size()) - 1;
  }

  void book_parameters(ProgramSet& set) {
    const int64_t element_bytes = input_.precision == Precision::kF32 ? 4 : 2;
    for (const Chunk& chunk : set.chunks) {
      set.parameter_booking.push_back(
          book(chunk.name + ".parameters", chunk.held_elements() * element_bytes, BookingKind::kParameter));
    }
  }

  void book_optimizer(ProgramSet& set) {
    const std::vector<std::string_view> states = optimizer_states(input_.optimizer, input_.precision);
    for (size_t chunk = 0; chunk < set.chunks.size(); ++chunk) {
      if (set.chunks[chunk].tied_alias || !set.chunks[chunk].trainable) continue;
      for (std::string_view state : states)
        set.state_booking[chunk].push_back(book(fmt::format("{}.{}", set.chunks[chunk].name, state),
                                                4 * set.chunks[chunk].owned_elements(), BookingKind::kOptimizer));
    }
  }

  void book_caches(ProgramSet& set) {
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      if (layers_[layer].kind != LayerKind::kAttention) continue;
      const int64_t width = layers_[layer].tensors[attention_tensor::kKvCache].width / input_.plan.layers[layer].tp;
      const int64_t element_bytes = input_.precision == Precision::kF32 ? 4 : 2;
      set.cache_booking[layer] = book(layers_[layer].name + ".kv_cache",
                                      input_.decode_cache_tokens * width * element_bytes, BookingKind::kCache);
    }
  }

 private:
  const CompileInput& input_;
  const std::vector<LayerDecl>& layers_;
  std::vector<Booking>& bookings_;
};

}  // namespace

ProgramSet book_states(const CompileInput& input, const std::vector<LayerDecl>& layers, bool with_optimizer,
                       bool with_cache, std::vector<Booking>& bookings) {
  ProgramSet set{};
  set.rank = input.rank;
  set.chunks = make_chunks(layers, input.plan, input.rank);
  set.state_booking.resize(set.chunks.size());
  set.cache_booking.assign(layers.size(), -1);
  StateBooker booker(input, layers, bookings);
  booker.book_parameters(set);
  if (with_optimizer) booker.book_optimizer(set);
  if (with_cache) booker.book_caches(set);
  int64_t training_bytes = 0;
  for (const TokenSplit& split : token_splits(input.plan))
    training_bytes += input.plan.accumulation * micro_batch_bytes(batch_capacity(input, split));
  const int64_t decode_bytes = with_cache ? micro_batch_bytes({input.decode_tokens, 1}) : 0;
  set.batch_booking = booker.book("batch", std::max(training_bytes, decode_bytes), BookingKind::kBatch);
  set.scalars_booking =
      booker.book("scalars", (sizeof(StepScalars) + kLine - 1) / kLine * kLine, BookingKind::kScalars);
  int64_t num_tensors = 0;
  for (const Chunk& chunk : set.chunks) num_tensors += static_cast<int64_t>(chunk.tensors.size());
  set.norms_booking = booker.book("norms", 8 * num_tensors, BookingKind::kScalars);
  return set;
}

}  // namespace strata

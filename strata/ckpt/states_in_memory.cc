// SPDX-License-Identifier: Apache-2.0
#include "strata/ckpt/states_in_memory.h"

#include <algorithm>

#include "strata/base/error.h"

namespace strata {
namespace {

class PartLister {
 public:
  explicit PartLister(const StatesInMemory& states)
      : states_(states),
        place_(place_of_rank(states.input.plan, states.set.rank)),
        names_(optimizer_states(states.input.optimizer, states.input.precision)) {}

  std::vector<StatePart> list(bool with_optimizer) {
    for (size_t chunk = 0; chunk < states_.set.chunks.size(); ++chunk) {
      list_parameters(chunk);
      const std::vector<int>& bookings = states_.set.state_booking[chunk];
      for (size_t state = 0; with_optimizer && state < bookings.size(); ++state)
        if (names_[state] != "master") list_state(chunk, names_[state], bookings[state]);
    }
    return std::move(parts_);
  }

 private:
  void list_parameters(size_t chunk) {
    const Chunk& entry = states_.set.chunks[chunk];
    const int booking = states_.set.parameter_booking[chunk];
    const int master = state_index(names_, "master");
    const bool rounded = states_.input.precision == Precision::kBF16;
    const std::vector<int>& bookings = states_.set.state_booking[chunk];
    const bool has_master = rounded && !bookings.empty();
    const bool owns_all = entry.owned_elements() == entry.held_elements();
    for (const ChunkPart& part : held_parts(states_.layers, entry, place_)) {
      StatePart& listed = add(part, kParametersState);
      const int64_t at = part.place - entry.held_begin();
      if (rounded) {
        listed.rounded = address<BF16>(booking, at);
        if (has_master && owns_all) listed.values = address<float>(bookings[static_cast<size_t>(master)], at);
      } else {
        listed.values = address<float>(booking, at);
      }
    }
    if (has_master && !owns_all) list_state(chunk, kParametersState, bookings[static_cast<size_t>(master)]);
  }

  void list_state(size_t chunk, std::string_view state, int booking) {
    const Chunk& entry = states_.set.chunks[chunk];
    for (const ChunkPart& part : owned_parts(states_.layers, entry, place_))
      add(part, state).values = address<float>(booking, part.place - entry.owned_begin());
  }

  StatePart& add(const ChunkPart& part, std::string_view state) {
    parts_.push_back({part.layer, part.parameter, state, part.part, nullptr, nullptr});
    return parts_.back();
  }

  template <typename T>
  T* address(int booking, int64_t element) const {
    return reinterpret_cast<T*>(states_.arena + states_.set.programs.front().bookings[booking].offset) + element;
  }

  const StatesInMemory& states_;
  RankPlace place_;
  std::vector<std::string_view> names_;
  std::vector<StatePart> parts_;
};

}  // namespace

std::vector<StatePart> list_state_parts(const StatesInMemory& states) { return PartLister(states).list(true); }
std::vector<StatePart> list_parameter_parts(const StatesInMemory& states) { return PartLister(states).list(false); }

const ParameterDecl& declaration_of(const StatePart& part, const std::vector<LayerDecl>& layers) {
  return layers[part.layer].parameters[part.parameter];
}

void store_values(const StatePart& part, int64_t begin, std::span<const float> values) {
  STRATA_CHECK(begin >= 0 && begin + static_cast<int64_t>(values.size()) <= part.part.count,
               "{} values at {} of a part of {}", values.size(), begin, part.part.count);
  if (part.values != nullptr) std::ranges::copy(values, part.values + begin);
  if (part.rounded != nullptr) std::ranges::transform(values, part.rounded + begin, to_bf16);
}

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// The multipliers of dropout on f32 vectors, for the per-target parts of the CPU kernels: philox on as many counters as
// a vector has lanes, equal to strata::philox bit for bit.

#if defined(STRATA_KERNELS_CPU_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_DROPOUT_INL_H_
#undef STRATA_KERNELS_CPU_DROPOUT_INL_H_
#else
#define STRATA_KERNELS_CPU_DROPOUT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "strata/base/random.h"
#include "strata/kernels/cpu/dropout_state.h"
#include "strata/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using WordTag = hn::ScalableTag<uint32_t>;

#if HWY_TARGET == HWY_SCALAR  // one lane has no wide products

HWY_INLINE void philox_words(uint64_t key, uint64_t token, uint64_t group, uint32_t* words_out) {
  const PhiloxBlock block = philox(key, token, group);
  std::copy(block.begin(), block.end(), words_out);
}

#else

struct WordProduct {
  hn::Vec<WordTag> high;
  hn::Vec<WordTag> low;
};

HWY_INLINE WordProduct multiply_words(hn::Vec<WordTag> a, hn::Vec<WordTag> b) {
  const WordTag words;
  const hn::RepartitionToWide<WordTag> pairs;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(words, hn::ShiftRight<32>(hn::BitCast(pairs, a))), b);
  return {hn::OddEven(hn::BitCast(words, odd), hn::BitCast(words, hn::ShiftRight<32>(even))),
          hn::OddEven(hn::BitCast(words, hn::ShiftLeft<32>(odd)), hn::BitCast(words, even))};
}

// The words of columns [4 * first_group, 4 * (first_group + lanes)) of one token.
HWY_INLINE void philox_words(uint64_t key, uint64_t token, uint64_t first_group, uint32_t* words_out) {
  const WordTag words;
  auto w0 = hn::Set(words, static_cast<uint32_t>(token));
  auto w1 = hn::Set(words, static_cast<uint32_t>(token >> 32));
  auto w2 = hn::Iota(words, static_cast<uint32_t>(first_group));  // columns stay below 2^34
  auto w3 = hn::Zero(words);
  auto key_low = static_cast<uint32_t>(key), key_high = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const WordProduct even = multiply_words(w0, hn::Set(words, 0xd2511f53u));
    const WordProduct odd = multiply_words(w2, hn::Set(words, 0xcd9e8d57u));
    w0 = hn::Xor(hn::Xor(odd.high, w1), hn::Set(words, key_low));
    w1 = odd.low;
    w2 = hn::Xor(hn::Xor(even.high, w3), hn::Set(words, key_high));
    w3 = even.low;
    key_low += 0x9e3779b9u;
    key_high += 0xbb67ae85u;
  }
  hn::StoreInterleaved4(w0, w1, w2, w3, words, words_out);
}

#endif

// body(tag, column, factor) over the columns of one row; factor is 0 or the scale of dropout, 1 without dropout.
template <class Body>
HWY_INLINE void for_each_dropped(const DropoutState& state, int64_t row, int64_t columns, const Body& body) {
  if (state.threshold == 0)
    return for_each_vector(columns, [&](auto d, int64_t i) HWY_ATTR { body(d, i, hn::Set(d, 1.0f)); });
  constexpr int64_t kTile = 256;  // columns; a multiple of 4 * lanes for every target
  alignas(64) uint32_t words[kTile];
  const auto step = static_cast<int64_t>(4 * hn::Lanes(WordTag()));
  const auto token = static_cast<uint64_t>(state.tokens[row]);
  for (int64_t first = 0; first < columns; first += kTile) {
    const int64_t count = std::min(kTile, columns - first);
    for (int64_t i = 0; i < count; i += step)
      philox_words(state.key, token, static_cast<uint64_t>((first + i) / 4), words + i);
    for_each_vector(count, [&](auto d, int64_t i) HWY_ATTR {
      const hn::Rebind<uint32_t, decltype(d)> unsigned_tag;
      const hn::Rebind<int32_t, decltype(d)> signed_tag;
      const auto uniform = hn::BitCast(signed_tag, hn::ShiftRight<8>(hn::LoadU(unsigned_tag, words + i)));
      const auto keep = hn::Not(hn::Lt(uniform, hn::Set(signed_tag, state.threshold)));
      body(d, first + i, hn::IfThenElseZero(hn::RebindMask(d, keep), hn::Set(d, state.scale)));
    });
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STRATA_KERNELS_CPU_DROPOUT_INL_H_

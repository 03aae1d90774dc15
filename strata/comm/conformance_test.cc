// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "strata/comm/testing_conformance.h"

namespace strata {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kSummed[] = {DType::kF32, DType::kBF16, DType::kF64};

// Nothing, less than one element per member, ends of vectors, several blocks of every backend and a rest.
constexpr int64_t kSizes[] = {0, 1, 2, 3, 7, 64, 1000, 4099, 300'003};

// Values of many magnitudes, so that another order of a sum gives other bits.
double value_of(int rank, int64_t i) {
  uint64_t bits =
      static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(rank + 1) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 29)) * 0x94d049bb133111ebu;
  bits ^= bits >> 32;
  const double mantissa = static_cast<double>(bits & 0xffffff) / 0x1p23 - 1.0;
  return std::ldexp(mantissa, static_cast<int>((bits >> 24) & 15) - 8);
}

void put(Bytes& values, DType dtype, int64_t i, double value) {
  std::byte* const at = values.data() + i * dtype_bytes(dtype);
  const auto single = static_cast<float>(value);
  const BF16 half = to_bf16(single);
  if (dtype == DType::kF64) std::memcpy(at, &value, sizeof value);
  if (dtype == DType::kF32) std::memcpy(at, &single, sizeof single);
  if (dtype == DType::kBF16) std::memcpy(at, &half, sizeof half);
}

double get(const Bytes& values, DType dtype, int64_t i) {
  const std::byte* const at = values.data() + i * dtype_bytes(dtype);
  double value = 0;
  float single = 0;
  BF16 half;
  if (dtype == DType::kF64) return std::memcpy(&value, at, sizeof value), value;
  if (dtype == DType::kF32) return std::memcpy(&single, at, sizeof single), single;
  return std::memcpy(&half, at, sizeof half), to_float(half);
}

Bytes values_of(int rank, DType dtype, int64_t elements) {
  Bytes values(static_cast<size_t>(elements * dtype_bytes(dtype)));
  for (int64_t i = 0; i < elements; ++i) put(values, dtype, i, value_of(rank, i));
  return values;
}

// The sum as comm.h promises it.
Bytes sum_of(std::span<const int> ranks, DType dtype, int64_t elements) {
  Bytes sums = values_of(ranks[0], dtype, elements);
  std::vector<Bytes> others;
  for (const int rank : ranks.subspan(1)) others.push_back(values_of(rank, dtype, elements));
  for (int64_t i = 0; i < elements; ++i) {
    double wide = get(sums, dtype, i);
    auto single = static_cast<float>(wide);
    for (const Bytes& other : others) {
      wide += get(other, dtype, i);
      single += static_cast<float>(get(other, dtype, i));
    }
    put(sums, dtype, i, dtype == DType::kF64 ? wide : single);
  }
  return sums;
}

void copy_part(const Bytes& from, Bytes& to, DType dtype, const PartRange& part) {
  const auto begin = part.begin * dtype_bytes(dtype);
  std::copy_n(from.begin() + begin, part.count * dtype_bytes(dtype), to.begin() + begin);
}

// Equal bits; names the first difference rather than printing megabytes.
void expect_equal(const Bytes& found, const Bytes& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  const auto [at, other] = std::ranges::mismatch(found, expected);
  EXPECT_EQ(at - found.begin(), std::ssize(found)) << what << ": the first byte that differs";
}

std::vector<int> all_ranks(const Comm& comm) {
  std::vector<int> ranks(static_cast<size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Group world_of(Comm& comm) { return comm.group("world", all_ranks(comm), 0); }

std::string describe(const Comm& comm, DType dtype, int64_t elements) {
  return fmt::format("rank {} of {}: {} {}", comm.rank(), comm.size(), elements, dtype_name(dtype));
}

void all_reduce_sums_in_order(Comm& comm) {
  const Group world = world_of(comm);
  for (const DType dtype : kSummed)
    for (const int64_t elements : kSizes) {
      Bytes values = values_of(comm.rank(), dtype, elements);
      comm.all_reduce(world, dtype, values.data(), elements);
      expect_equal(values, sum_of(all_ranks(comm), dtype, elements), describe(comm, dtype, elements));
    }
}

void reduce_scatter_sums_the_own_part(Comm& comm) {
  const Group world = world_of(comm);
  for (const DType dtype : kSummed)
    for (const int64_t elements : kSizes) {
      Bytes values = values_of(comm.rank(), dtype, elements), expected = values;
      copy_part(sum_of(all_ranks(comm), dtype, elements), expected, dtype,
                part_range(elements, comm.size(), comm.rank()));
      comm.reduce_scatter(world, dtype, values.data(), elements);
      expect_equal(values, expected, describe(comm, dtype, elements));
    }
}

void all_gather_collects_the_parts(Comm& comm) {
  const Group world = world_of(comm);
  for (const DType dtype : kSummed)
    for (const int64_t elements : kSizes) {
      Bytes values = values_of(comm.rank(), dtype, elements), expected = values;
      for (const int rank : all_ranks(comm))
        copy_part(values_of(rank, dtype, elements), expected, dtype, part_range(elements, comm.size(), rank));
      comm.all_gather(world, dtype, values.data(), elements);
      expect_equal(values, expected, describe(comm, dtype, elements));
    }
}

// Member m gives member k so many bytes; nothing where both are even.
int64_t bytes_from_to(int64_t scale, int from, int to) {
  return from % 2 == 0 && to % 2 == 0 ? 0 : scale * (1 + from) + to;
}

Bytes bytes_for(int64_t scale, int from, int to) {
  Bytes bytes(static_cast<size_t>(bytes_from_to(scale, from, to)));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(from * 31 + to));
  return bytes;
}

void all_to_all_exchanges_parts(Comm& comm) {
  const Group world = world_of(comm);
  for (const int64_t scale : {0, 1, 4099, 700'001}) {
    std::vector<Bytes> given, wanted, received;
    for (const int other : all_ranks(comm)) {
      given.push_back(bytes_for(scale, comm.rank(), other));
      wanted.push_back(bytes_for(scale, other, comm.rank()));
      received.emplace_back(wanted.back().size());
    }
    const std::vector<std::span<const std::byte>> send(given.begin(), given.end());
    const std::vector<std::span<std::byte>> receive(received.begin(), received.end());
    comm.all_to_all(world, send, receive);
    for (const int other : all_ranks(comm))
      expect_equal(received[static_cast<size_t>(other)], wanted[static_cast<size_t>(other)],
                   fmt::format("rank {} from {}, scale {}", comm.rank(), other, scale));
  }
}

void broadcast_from_every_member(Comm& comm) {
  const Group world = world_of(comm);
  for (const int from : all_ranks(comm))
    for (const int64_t elements : {0, 1, 5, 600'001}) {
      Bytes bytes = values_of(comm.rank(), DType::kBF16, elements);
      comm.broadcast(world, from, bytes);
      expect_equal(bytes, values_of(from, DType::kBF16, elements), fmt::format("from {}, {}", from, elements));
    }
}

// Integers whose sums are exact, at sizes that take several rounds of pieces on every backend.
void large_buffers_go_in_rounds(Comm& comm) {
  const Group world = world_of(comm);
  const int64_t n = comm.size(), elements = 1'100'000 * std::min<int64_t>(n, 4) + 1;
  const PartRange own = part_range(elements, n, comm.rank());
  std::vector<float> values(static_cast<size_t>(elements));
  std::byte* const bytes = reinterpret_cast<std::byte*>(values.data());
  const auto value = [](int64_t rank, int64_t i) { return static_cast<float>(1000 * rank + i % 977); };
  const auto sum = [n](int64_t i) { return static_cast<float>(1000 * n * (n - 1) / 2 + n * (i % 977)); };
  const auto fill = [&] {
    for (int64_t i = 0; i < elements; ++i) values[static_cast<size_t>(i)] = value(comm.rank(), i);
  };
  const auto expect_sums = [&](int64_t begin, int64_t end, const char* what) {
    for (int64_t i = begin; i < end; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], sum(i)) << what << " at " << i;
  };
  fill();
  comm.reduce_scatter(world, DType::kF32, bytes, elements);
  expect_sums(own.begin, own.begin + own.count, "reduce-scatter");
  comm.all_gather(world, DType::kF32, bytes, elements);
  expect_sums(0, elements, "all-gather");
  fill();
  comm.all_reduce(world, DType::kF32, bytes, elements);
  expect_sums(0, elements, "all-reduce");
}

// The clock is one for all processes of a machine.
double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void barrier_waits_for_all(Comm& comm) {
  const Group world = world_of(comm);
  for (const int last : all_ranks(comm)) {
    if (comm.rank() == last) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    double arrived = now_seconds();
    comm.barrier(world);
    const double left = now_seconds();
    comm.broadcast(world, last, std::as_writable_bytes(std::span(&arrived, 1)));
    EXPECT_GE(left, arrived) << "rank " << comm.rank() << " did not wait for rank " << last;
  }
}

void send_and_receive_around_the_ring(Comm& comm) {
  if (comm.size() == 1) return;
  const int next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();
  for (const int64_t elements : {0, 1, 8, 1000, 1'500'001}) {
    const Bytes own = values_of(comm.rank(), DType::kBF16, elements);
    Bytes received(own.size());
    // The last rank receives first; otherwise all would wait for their receivers.
    if (comm.rank() == comm.size() - 1) comm.receive(previous, 3, received);
    comm.send(next, 3, own);
    if (comm.rank() != comm.size() - 1) comm.receive(previous, 3, received);
    expect_equal(received, values_of(previous, DType::kBF16, elements), describe(comm, DType::kBF16, elements));
  }
}

void messages_on_a_lane_keep_their_order(Comm& comm) {
  if (comm.size() == 1 || comm.rank() > 1) return;
  for (int64_t i = 0; i < 200; ++i) {
    int64_t value = i;
    if (comm.rank() == 0) comm.send(1, 0, std::as_bytes(std::span(&value, 1)));
    if (comm.rank() == 1) {
      comm.receive(0, 0, std::as_writable_bytes(std::span(&value, 1)));
      EXPECT_EQ(value, i);
    }
  }
}

void groups_sum_in_their_own_order(Comm& comm) {
  std::vector<int> reversed = all_ranks(comm), half;
  std::ranges::reverse(reversed);
  for (const int rank : all_ranks(comm))
    if (rank % 2 == comm.rank() % 2) half.push_back(rank);
  for (const auto& ranks : {reversed, half}) {
    const Group group = comm.group("part", ranks, 1);
    EXPECT_EQ(group.size, std::ssize(ranks));
    EXPECT_EQ(ranks[static_cast<size_t>(group.member)], comm.rank());
    Bytes values = values_of(comm.rank(), DType::kF32, 4099);
    comm.all_reduce(group, DType::kF32, values.data(), 4099);
    expect_equal(values, sum_of(ranks, DType::kF32, 4099), describe(comm, DType::kF32, 4099));
    // The order shows, or this case could not fail: with three values and more.
    if (ranks == reversed && comm.size() > 2) {
      EXPECT_NE(values, sum_of(all_ranks(comm), DType::kF32, 4099));
    }
  }
}

void groups_are_cached(Comm& comm) {
  const Group world = world_of(comm);
  EXPECT_EQ(comm.group("again", all_ranks(comm), 0).id, world.id);
  const Group other_lane = comm.group("world", all_ranks(comm), 4);
  EXPECT_NE(other_lane.id, world.id);
  comm.barrier(other_lane);
}

// Case B9: the pieces in which a buffer is summed do not show.
void pieces_do_not_change_the_sum(Comm& comm) {
  constexpr int64_t kElements = 10'007;
  const Group world = world_of(comm);
  const Bytes expected = sum_of(all_ranks(comm), DType::kBF16, kElements);
  for (const int64_t piece : {1, 1000, 10'007}) {
    Bytes values = values_of(comm.rank(), DType::kBF16, kElements);
    for (int64_t begin = piece == 1 ? 9'900 : 0; begin < kElements; begin += piece)
      comm.all_reduce(world, DType::kBF16, values.data() + begin * 2, std::min(piece, kElements - begin));
    if (piece == 1) std::copy_n(expected.begin(), 9'900 * 2, values.begin());
    expect_equal(values, expected, fmt::format("pieces of {}", piece));
  }
}

void lanes_work_at_the_same_time(Comm& comm) {
  const auto work = [&](int lane) {
    const Group group = comm.group(fmt::format("lane {}", lane), all_ranks(comm), lane);
    const int64_t elements = lane == 5 ? 9 : 70'001;
    const Bytes expected = sum_of(all_ranks(comm), DType::kF32, elements);
    for (int turn = 0; turn < 20; ++turn) {
      Bytes values = values_of(comm.rank(), DType::kF32, elements);
      comm.all_reduce(group, DType::kF32, values.data(), elements);
      expect_equal(values, expected, fmt::format("lane {}", lane));
      const int partner = comm.rank() ^ 1;
      if (partner >= comm.size()) continue;
      if (comm.rank() < partner) comm.send(partner, lane, expected);
      if (comm.rank() > partner) comm.receive(partner, lane, values);
    }
  };
  // Groups with members in common are made in the same order by all.
  for (const int lane : {5, 6}) comm.group(fmt::format("lane {}", lane), all_ranks(comm), lane);
  std::thread other(work, 5);
  work(6);
  other.join();
}

void many_small_calls(Comm& comm) {
  const Group world = world_of(comm);
  for (int turn = 0; turn < 500; ++turn) {
    double value = comm.rank() + turn;
    comm.all_reduce(world, DType::kF64, reinterpret_cast<std::byte*>(&value), 1);
    const int n = comm.size();
    ASSERT_EQ(value, n * turn + n * (n - 1) / 2);
  }
}

void counts_what_is_sent(Comm& comm) {
  const std::vector<int> ranks = all_ranks(comm);
  const Group group = comm.group("counted", ranks, 7);
  const int64_t n = comm.size(), elements = 12 * n;
  Bytes values(static_cast<size_t>(elements * 4)), other(values.size());
  comm.all_reduce(group, DType::kF32, values.data(), elements);
  comm.all_reduce(group, DType::kF32, values.data(), elements);
  comm.reduce_scatter(group, DType::kF32, values.data(), elements);
  comm.all_gather(group, DType::kBF16, values.data(), elements);
  const std::vector<std::span<const std::byte>> send(static_cast<size_t>(n), std::span(values).first(7));
  std::vector<std::span<std::byte>> receive;
  for (int from = 0; from < n; ++from) receive.push_back(std::span(other).subspan(static_cast<size_t>(7 * from), 7));
  comm.all_to_all(group, send, receive);
  comm.broadcast(group, 0, std::span(values).first(10));
  comm.barrier(group);
  const int64_t share = 12 * (n - 1);  // elements / n * (n - 1)
  const auto expect_count = [&](const std::string& kind, int64_t calls, int64_t sent, int64_t bytes) {
    const std::vector<CommCount> counts = comm.counts();
    const auto found =
        std::ranges::find_if(counts, [&](const CommCount& one) { return one.kind == kind && one.group == "counted"; });
    ASSERT_NE(found, counts.end()) << kind;
    EXPECT_EQ(found->calls, calls) << kind;
    EXPECT_EQ(found->elements, sent) << kind;
    EXPECT_EQ(found->bytes, bytes) << kind;
  };
  expect_count("all-reduce", 2, 4 * share, 16 * share);
  expect_count("reduce-scatter", 1, share, 4 * share);
  expect_count("all-gather", 1, share, 2 * share);
  expect_count("all-to-all", 1, 0, 7 * (n - 1));
  expect_count("broadcast", 1, 0, comm.rank() == 0 ? 10 * (n - 1) : 0);
  expect_count("barrier", 1, 0, 0);
}

void counts_messages(Comm& comm) {
  if (comm.size() == 1) return;
  const auto peer_bytes = [&](const std::string& kind) {
    for (const CommCount& one : comm.counts())
      if (one.kind == kind && one.group == "peer") return std::pair(one.calls, one.bytes);
    return std::pair(int64_t{0}, int64_t{0});
  };
  const auto sent = peer_bytes("send"), received = peer_bytes("receive");
  Bytes bytes(24);
  if (comm.rank() == 0) {
    comm.send(1, 0, bytes);
    EXPECT_EQ(peer_bytes("send"), std::pair(sent.first + 1, sent.second + 24));
  }
  if (comm.rank() == 1) {
    comm.receive(0, 0, bytes);
    EXPECT_EQ(peer_bytes("receive"), std::pair(received.first + 1, received.second));
  }
}

void ranks_share_this_machine(Comm& comm) { EXPECT_EQ(comm.ranks_on_node(), comm.size()); }

constexpr ConformanceCase kCases[] = {
    {"AllReduceSumsInOrder", all_reduce_sums_in_order},
    {"ReduceScatterSumsTheOwnPart", reduce_scatter_sums_the_own_part},
    {"AllGatherCollectsTheParts", all_gather_collects_the_parts},
    {"AllToAllExchangesParts", all_to_all_exchanges_parts},
    {"BroadcastFromEveryMember", broadcast_from_every_member},
    {"LargeBuffersGoInRounds", large_buffers_go_in_rounds},
    {"BarrierWaitsForAll", barrier_waits_for_all},
    {"SendAndReceiveAroundTheRing", send_and_receive_around_the_ring},
    {"MessagesOnALaneKeepTheirOrder", messages_on_a_lane_keep_their_order},
    {"GroupsSumInTheirOwnOrder", groups_sum_in_their_own_order},
    {"GroupsAreCached", groups_are_cached},
    {"PiecesDoNotChangeTheSum", pieces_do_not_change_the_sum},
    {"LanesWorkAtTheSameTime", lanes_work_at_the_same_time},
    {"ManySmallCalls", many_small_calls},
    {"CountsWhatIsSent", counts_what_is_sent},
    {"CountsMessages", counts_messages},
    {"RanksShareThisMachine", ranks_share_this_machine},
};

}  // namespace

std::span<const ConformanceCase> conformance_cases() { return kCases; }

}  // namespace strata

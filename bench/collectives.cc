// SPDX-License-Identifier: Apache-2.0
// Collectives between the MPI ranks that run this, against plain loops that add and copy as many bytes as a rank
// receives, from its own memory, on every rank at the same time. All values are in arenas, as in training. Rank 0
// prints a line per round, size and kind: seconds of the slowest rank, of the collective and of the loops. Usage:
// mpirun -n 2 collectives ROUNDS LARGEST_MIB
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "strata/comm/mpi/mpi_comm.h"
#include "strata/device/arena.h"

namespace {

using strata::Comm;
using strata::DType;
using strata::Group;

constexpr double kTimeoutSeconds = 120;
constexpr int64_t kMib = 1 << 20;
constexpr int64_t kSizes[] = {16, kMib, 4 * kMib, 16 * kMib, 64 * kMib, 256 * kMib, 512 * kMib};
// What the loops add lies at no power of two from what they add it to: then both would want the same places of the
// caches, and the loops take twice as long.
constexpr int64_t kApart = 6 * kMib + 4352;
constexpr int64_t kTimedBytes = 128 * kMib;  // a call of less is repeated

class Bench {
 public:
  Bench(Comm& comm, int64_t largest)
      : comm_(comm),
        arena_(2 * largest + kApart),
        values_(floats(0, largest)),
        received_(floats(largest + kApart, largest)) {
    std::ranges::fill(values_, 1.0f);
    std::ranges::fill(received_, 1.0f);
    std::vector<int> ranks(static_cast<size_t>(comm.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    world_ = comm.group("world", ranks, 0);
  }

  void measure(int round, int64_t bytes) {
    const int64_t elements = bytes / 4, part = elements / comm_.size(), own = comm_.rank();
    const auto add = [=, this](float* values, const float* received) {
      for (int64_t other = 0; other < comm_.size(); ++other)
        if (other != own)
          for (int64_t i = own * part; i < (own + 1) * part; ++i) values[i] += received[i];
    };
    const auto copy = [=, this](float* values, const float* received) {
      for (int64_t other = 0; other < comm_.size(); ++other)
        if (other != own) std::memcpy(values + other * part, received + other * part, static_cast<size_t>(part * 4));
    };
    const auto add_and_copy = [=](float* values, const float* received) {
      add(values, received), copy(values, received);
    };
    const auto bytes_of = [](float* values) { return reinterpret_cast<std::byte*>(values); };
    print(round, elements, "reduce-scatter", add, [=, this](float* values, const float*) {
      comm_.reduce_scatter(world_, DType::kF32, bytes_of(values), elements);
    });
    print(round, elements, "all-gather", copy, [=, this](float* values, const float*) {
      comm_.all_gather(world_, DType::kF32, bytes_of(values), elements);
    });
    print(round, elements, "all-reduce", add_and_copy, [=, this](float* values, const float*) {
      comm_.all_reduce(world_, DType::kF32, bytes_of(values), elements);
    });
  }

 private:
  std::span<float> floats(int64_t begin, int64_t bytes) const {
    return {reinterpret_cast<float*>(arena_.base() + begin), static_cast<size_t>(bytes / 4)};
  }

  using Work = std::function<void(float* values, const float* received)>;

  void print(int round, int64_t elements, const char* kind, const Work& loops, const Work& collective) {
    const double loop_seconds = seconds(loops, elements), collective_seconds = seconds(collective, elements);
    std::ranges::fill(values_, 1.0f);  // sums would grow without end
    if (comm_.rank() == 0)
      std::printf("round %d bytes %lld %s %.3e loops %.3e\n", round, static_cast<long long>(elements * 4), kind,
                  collective_seconds, loop_seconds);
    std::fflush(stdout);
  }

  // Of one call, on the slowest rank. Every call has values that no cache holds, as far as there are so many.
  double seconds(const Work& work, int64_t elements) {
    using Clock = std::chrono::steady_clock;
    const auto places = static_cast<int64_t>(values_.size()) / elements;
    const int64_t times = std::clamp<int64_t>(kTimedBytes / 4 / elements, 1, 1000);
    const auto turn = [&](int64_t i) {
      work(values_.data() + i % places * elements, received_.data() + i % places * elements);
    };
    turn(places - 1);
    comm_.barrier(world_);
    const auto begin = Clock::now();
    for (int64_t i = 0; i < times; ++i) turn(i);
    std::vector<double> of_ranks(static_cast<size_t>(comm_.size()));
    of_ranks[static_cast<size_t>(comm_.rank())] = std::chrono::duration<double>(Clock::now() - begin).count();
    comm_.all_gather(world_, DType::kF64, reinterpret_cast<std::byte*>(of_ranks.data()), comm_.size());
    return *std::ranges::max_element(of_ranks) / static_cast<double>(times);
  }

  Comm& comm_;
  Group world_;
  strata::Arena arena_;
  std::span<float> values_;
  std::span<float> received_;  // what the loops add and copy: own memory that stands for that of the others
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc == 3 ? std::atoi(argv[1]) : 0;
  const int64_t largest = argc == 3 ? std::atoll(argv[2]) * kMib : 0;
  if (rounds < 1 || largest < 1) {
    std::fprintf(stderr, "usage: collectives ROUNDS LARGEST_MIB\n");
    return 2;
  }
  const std::unique_ptr<Comm> comm = strata::make_mpi_comm(kTimeoutSeconds);
  Bench bench(*comm, largest);
  for (int round = 1; round <= rounds; ++round)
    for (const int64_t bytes : kSizes)
      if (bytes <= largest) bench.measure(round, bytes);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// How ranks exchange bytes. A Comm is one rank's end: of itself alone (self), of ranks that are threads of this process
// (local), or of MPI processes (mpi). Every function blocks the calling thread until its part is complete on this rank;
// what runs beside the computation is called from a thread of its own. Calls over one group, or to one peer on one
// lane, match in order. Different lanes may be used by different threads at the same time; one lane by one thread. Sums
// are ours and the same on every backend: the library only moves the parts, which are added in the order of the group's
// ranks, in f32 (f64 for f64), and rounded once. So neither pieces, buckets nor the library change a bit. A call that
// another member does not join throws Error (failed run) that names it, the group and the seconds waited; after abort()
// by any rank all waiting and later calls of all ranks throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/tensor/tensor.h"

namespace strata {

// Ranks that communicate: a value, valid for the Comm that made it. Member m is ranks()[m] of the call that made it.
struct Group {
  int id = -1;
  int size = 1;
  int member = 0;  // this rank's place
};

// What went through this rank since the start, by kind of call: what this rank sent. Elements are those of typed
// values; all-to-alls, broadcasts and messages are bytes only.
struct CommCount {
  std::string kind;   // "all-reduce", "reduce-scatter", ...
  std::string group;  // name given to group(), or "peer"
  int64_t calls = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Processes on this rank's machine, this one included: they share its cores and memory.
  virtual int ranks_on_node() const = 0;

  // Called by all members, which must make groups that have members in common in the same order. `ranks` holds this
  // rank; their order is the order of sums. Cached by (ranks, lane).
  virtual Group group(const std::string& name, std::span<const int> ranks, int lane) = 0;

  // `values` holds `elements` of dtype (f32, bf16 or f64); part m of n is part_range(elements, n, m).
  // All parts are summed on every member.
  virtual void all_reduce(const Group& group, DType dtype, std::byte* values, int64_t elements) = 0;
  // The own part is summed; the other parts are left as they were.
  virtual void reduce_scatter(const Group& group, DType dtype, std::byte* values, int64_t elements) = 0;
  // Every member gives its part and gets all of them.
  virtual void all_gather(const Group& group, DType dtype, std::byte* values, int64_t elements) = 0;
  // Member m gives send[k] to member k and gets receive[k] from it; the own one is copied. Sizes may differ and be
  // zero.
  virtual void all_to_all(const Group& group, std::span<const std::span<const std::byte>> send,
                          std::span<const std::span<std::byte>> receive) = 0;
  virtual void broadcast(const Group& group, int from_member, std::span<std::byte> bytes) = 0;
  virtual void barrier(const Group& group) = 0;

  // To and from a global rank; complete when the receiver has the bytes or they were copied.
  virtual void send(int peer, int lane, std::span<const std::byte> bytes) = 0;
  virtual void receive(int peer, int lane, std::span<std::byte> bytes) = 0;

  // Ends the run of all ranks with this reason; the first reason of all ranks is the one that counts.
  virtual void abort(const std::string& reason) = 0;

  virtual std::vector<CommCount> counts() const = 0;
};

// Elements [begin, begin + count) of a buffer that `parts` members share: equal parts of ceil(elements / parts), the
// last ones shorter or empty.
struct PartRange {
  int64_t begin = 0;
  int64_t count = 0;
};
PartRange part_range(int64_t elements, int64_t parts, int64_t part);

// The world of one rank: every collective is the identity.
std::unique_ptr<Comm> make_self_comm();

// Ranks as threads of this process, for tests, sanitizers and small worlds: one end per rank. Seconds that a call waits
// for the others before it gives up.
std::vector<std::unique_ptr<Comm>> make_local_comms(int num_ranks, double timeout_seconds);

}  // namespace strata

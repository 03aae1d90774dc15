// SPDX-License-Identifier: Apache-2.0
// Non-blocking operations that are waited for together. Whoever destroys unfinished ones has given up on the process.
#pragma once

#include <mpi.h>

#include <span>
#include <string>
#include <vector>

#include "strata/comm/mpi/mpi_process.h"

namespace strata {

class Requests {
 public:
  static constexpr int64_t kLargestMessage = 1 << 30;  // MPI counts in int

  // Ranks of messages are those of `comm`, whose global ranks are `ranks`.
  // What is longer than `largest_message` travels as several, so both sides must have the same.
  Requests(MpiProcess& process, MPI_Comm comm, std::vector<int> ranks, double timeout_seconds,
           int64_t largest_message = kLargestMessage)
      : process_(process),
        comm_(comm),
        ranks_(std::move(ranks)),
        timeout_seconds_(timeout_seconds),
        largest_message_(largest_message) {}

  void send(int to, int tag, const std::byte* bytes, int64_t num_bytes);
  void receive(int from, int tag, std::byte* bytes, int64_t num_bytes);
  // A collective operation that has been started.
  void add(MPI_Request request);

  // Returns when all are done. Throws Error that begins with `what` and names the peers that did nothing in time.
  void wait(const std::string& what);

 private:
  struct Operation {
    int peer = -1;          // member of comm_, -1 for all
    int64_t received = -1;  // bytes that must come, -1 for none
  };
  [[noreturn]] void throw_missing(const std::string& what);

  MpiProcess& process_;
  MPI_Comm comm_;
  std::vector<int> ranks_;
  double timeout_seconds_;
  int64_t largest_message_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<Operation> operations_;
};

}  // namespace strata

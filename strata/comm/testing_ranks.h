// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, for tests. An exception that leaves a rank's body fails the test with its message.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "strata/comm/comm.h"

namespace strata {

// body(comm) on every rank at the same time.
template <typename Body>
void run_local_ranks(int num_ranks, double timeout_seconds, Body&& body) {
  const std::vector<std::unique_ptr<Comm>> comms = make_local_comms(num_ranks, timeout_seconds);
  std::vector<std::thread> threads;
  for (const std::unique_ptr<Comm>& comm : comms)
    threads.emplace_back([&body, &comm] {
      try {
        body(*comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << comm->rank() << ": " << error.what();
        comm->abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace strata

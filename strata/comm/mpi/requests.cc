// SPDX-License-Identifier: Apache-2.0
#include "strata/comm/mpi/requests.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "strata/base/error.h"

namespace strata {

namespace {

// Calls body(begin, count) for the messages that carry `num_bytes` bytes; at least one.
template <typename Body>
void for_messages(int64_t num_bytes, int64_t largest, Body&& body) {
  int64_t begin = 0;
  do {
    body(begin, std::min(largest, num_bytes - begin));
    begin += largest;
  } while (begin < num_bytes);
}

}  // namespace

void Requests::send(int to, int tag, const std::byte* bytes, int64_t num_bytes) {
  for_messages(num_bytes, largest_message_, [&](int64_t begin, int64_t count) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(bytes + begin, static_cast<int>(count), MPI_BYTE, to, tag, comm_, &request), "MPI_Isend");
    requests_.push_back(request);
    operations_.push_back({to, -1});
  });
}

void Requests::receive(int from, int tag, std::byte* bytes, int64_t num_bytes) {
  for_messages(num_bytes, largest_message_, [&](int64_t begin, int64_t count) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(bytes + begin, static_cast<int>(count), MPI_BYTE, from, tag, comm_, &request), "MPI_Irecv");
    requests_.push_back(request);
    operations_.push_back({from, count});
  });
}

void Requests::add(MPI_Request request) {
  requests_.push_back(request);
  operations_.push_back({});
}

void Requests::wait(const std::string& what) {
  const auto count = static_cast<int>(requests_.size());
  statuses_.resize(requests_.size());
  const auto done = [&] {
    int flag = 0;
    const int code = MPI_Testall(count, requests_.data(), &flag, statuses_.data());
    if (code == MPI_SUCCESS) return flag != 0;
    process_.give_up();
    const auto failed = std::ranges::find_if(statuses_, [](const MPI_Status& one) {
      return one.MPI_ERROR != MPI_SUCCESS && one.MPI_ERROR != MPI_ERR_PENDING;
    });
    check_mpi(failed == statuses_.end() ? code : failed->MPI_ERROR, what.c_str());
    return false;
  };
  if (!process_.polling().wait(timeout_seconds_, done)) throw_missing(what);
  for (size_t i = 0; i < operations_.size(); ++i) {
    if (operations_[i].received < 0) continue;
    int bytes = 0;
    MPI_Get_count(&statuses_[i], MPI_BYTE, &bytes);
    STRATA_CHECK(bytes == operations_[i].received, "{}: {} bytes from rank {} where {} were expected", what, bytes,
                 ranks_[static_cast<size_t>(operations_[i].peer)], operations_[i].received);
  }
  requests_.clear();
  operations_.clear();
}

void Requests::throw_missing(const std::string& what) {
  process_.give_up();
  std::vector<int> missing;
  for (size_t i = 0; i < operations_.size(); ++i) {
    int flag = 0;
    MPI_Test(&requests_[i], &flag, MPI_STATUS_IGNORE);
    if (flag == 0 && operations_[i].peer >= 0) missing.push_back(ranks_[static_cast<size_t>(operations_[i].peer)]);
  }
  std::ranges::sort(missing);
  missing.erase(std::ranges::unique(missing).begin(), missing.end());
  if (missing.empty())
    throw_failed_run("{}: waited {} s for all of {}", what, timeout_seconds_, fmt::join(ranks_, ", "));
  throw_failed_run("{}: waited {} s for ranks {}", what, timeout_seconds_, fmt::join(missing, ", "));
}

}  // namespace strata

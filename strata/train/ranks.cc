// SPDX-License-Identifier: Apache-2.0
#include "strata/train/ranks.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "strata/base/checksum.h"
#include "strata/base/error.h"
#include "strata/program/program.h"

namespace strata {
namespace {

constexpr int kLane = kNumQueues;  // programs have the lanes of their queues

}  // namespace

Ranks::Ranks(Comm* comm) : comm_(comm) {
  if (comm == nullptr) return;
  std::vector<int> ranks(static_cast<size_t>(comm->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  all_ = comm->group("all", ranks, kLane);
}

void Ranks::barrier() {
  if (comm_ != nullptr) comm_->barrier(all_);
}

double Ranks::sum(double value) {
  if (comm_ != nullptr) comm_->all_reduce(all_, DType::kF64, reinterpret_cast<std::byte*>(&value), 1);
  return value;
}

double Ranks::smallest(double value) {
  if (comm_ == nullptr) return value;
  std::vector<double> values(static_cast<size_t>(size()));
  values[static_cast<size_t>(rank())] = value;
  comm_->all_gather(all_, DType::kF64, reinterpret_cast<std::byte*>(values.data()), size());
  return *std::min_element(values.begin(), values.end());
}

std::string Ranks::from(int rank, const std::string& text) {
  if (comm_ == nullptr) return text;
  auto length = static_cast<int64_t>(text.size());
  comm_->broadcast(all_, rank, std::as_writable_bytes(std::span(&length, 1)));
  std::string result = this->rank() == rank ? text : std::string(static_cast<size_t>(length), '\0');
  comm_->broadcast(all_, rank, std::as_writable_bytes(std::span(result)));
  return result;
}

void Ranks::first_then_others(const std::function<void()>& body) {
  if (first()) body();
  barrier();
  if (!first()) body();
}

void Ranks::together(const std::function<void()>& body) {
  std::optional<Error> error;
  try {
    body();
  } catch (const Error& own) {
    error = own;
  }
  const auto teller = static_cast<int>(smallest(error ? rank() : size()));
  if (teller == size()) return;
  const std::string reason = from(teller, error ? error->what() : "");
  const bool bad_input = from(teller, error && error->kind() == ErrorKind::kFailedRun ? "" : "bad input") != "";
  const bool common = !any(!error || reason != error->what());
  refuse(common ? reason : fmt::format("rank {}: {}", teller, reason),
         bad_input ? ErrorKind::kBadInput : ErrorKind::kFailedRun);
}

void Ranks::refuse(const std::string& reason, ErrorKind kind) {
  if (!first()) barrier();
  throw Error(kind, reason);
}

void Ranks::require_equal(std::string_view what, std::string_view text) {
  if (comm_ == nullptr) return;
  std::vector<int64_t> checksums(static_cast<size_t>(size()));
  checksums[static_cast<size_t>(rank())] = static_cast<int64_t>(checksum_of(std::as_bytes(std::span(text))));
  comm_->all_gather(all_, DType::kF64, reinterpret_cast<std::byte*>(checksums.data()), size());
  const auto other = std::find_if(checksums.begin(), checksums.end(), [&](int64_t sum) { return sum != checksums[0]; });
  if (other == checksums.end()) return;
  refuse(fmt::format(
      "the {} of rank {} differs from that of rank 0 (checksums {:016x} and {:016x}): start all ranks alike", what,
      other - checksums.begin(), static_cast<uint64_t>(*other), static_cast<uint64_t>(checksums[0])));
}

}  // namespace strata

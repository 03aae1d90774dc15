// SPDX-License-Identifier: Apache-2.0
#include "strata/exec/row_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "strata/base/error.h"

namespace strata {
namespace {

// Bytes of a row that two holdings have both, from their places in the rows of each.
struct ColumnRun {
  int64_t first = 0, second = 0, bytes = 0;
};

// One of the two has whole rows, or both have the same part.
std::vector<ColumnRun> common_columns(const std::vector<int64_t>& blocks, const Holding& first, const Holding& second) {
  const int64_t parts = std::max(first.column_parts, second.column_parts);
  const int64_t row = std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
  if (first.column_parts == second.column_parts) return {{0, 0, row / parts}};
  const bool first_is_whole = first.column_parts == 1;
  STRATA_CHECK(first_is_whole || second.column_parts == 1, "columns in {} and in {} parts", first.column_parts,
               second.column_parts);
  const int64_t part = first_is_whole ? second.column_part : first.column_part;
  std::vector<ColumnRun> runs;
  int64_t whole = 0, packed = 0;
  for (const int64_t block : blocks) {
    const int64_t bytes = block / parts, place = whole + part * bytes;
    runs.push_back({first_is_whole ? place : packed, first_is_whole ? packed : place, bytes});
    whole += block;
    packed += bytes;
  }
  return runs;
}

// What goes from one member to another.
struct Transfer {
  std::vector<CommonRows> rows;
  std::vector<ColumnRun> columns;
  int64_t first_row_bytes = 0, second_row_bytes = 0;  // of the two members' memory

  int64_t bytes() const {
    int64_t row = 0, count = 0;
    for (const ColumnRun& run : columns) row += run.bytes;
    for (const CommonRows& run : rows) count += run.count;
    return row * count;
  }
  bool whole_rows() const { return columns.size() == 1 && columns[0].bytes == first_row_bytes; }
  // Calls body(byte in the first's memory, in the second's, bytes) for what lies together in both.
  template <typename Body>
  void for_pieces(Body&& body) const {
    const bool whole = whole_rows() && first_row_bytes == second_row_bytes;
    for (const CommonRows& run : rows) {
      if (whole) {
        body(run.first * first_row_bytes, run.second * second_row_bytes, run.count * first_row_bytes);
        continue;
      }
      for (int64_t row = 0; row < run.count; ++row)
        for (const ColumnRun& column : columns)
          body((run.first + row) * first_row_bytes + column.first,
               (run.second + row) * second_row_bytes + column.second, column.bytes);
    }
  }
};

class Exchange {
 public:
  Exchange(int member, const RowExchange& exchange)
      : exchange_(exchange), member_(static_cast<size_t>(member)), scratch_(exchange.scratch) {
    row_bytes_ = std::accumulate(exchange.block_bytes.begin(), exchange.block_bytes.end(), int64_t{0});
  }

  void run(Comm& comm, const Group& group) {
    const size_t size = exchange_.from.size();
    std::vector<std::span<const std::byte>> sent(size);
    std::vector<std::span<std::byte>> received(size);
    std::vector<Transfer> arriving(size);
    for (size_t other = 0; other < size; ++other) {
      if (other == member_) continue;
      sent[other] = pack(other);
      arriving[other] = transfer(other, member_);
      received[other] = place_for(arriving[other]);
    }
    copy_own();
    comm.all_to_all(group, sent, received);
    for (size_t other = 0; other < size; ++other) unpack(arriving[other], received[other]);
  }

  void copy_own() {
    transfer(member_, member_).for_pieces([&](int64_t first, int64_t second, int64_t count) {
      std::memcpy(exchange_.target + second, exchange_.source + first, static_cast<size_t>(count));
    });
  }

 private:
  // Of all members that have the same, a receiver gets it from itself or from one that its number chooses.
  size_t giver(size_t from, size_t to) const {
    std::vector<size_t> alike;
    for (size_t member = 0; member < exchange_.from.size(); ++member)
      if (exchange_.from[member] == exchange_.from[from]) alike.push_back(member);
    return std::find(alike.begin(), alike.end(), to) != alike.end() ? to : alike[to % alike.size()];
  }

  Transfer transfer(size_t from, size_t to) const {
    const Holding &source = exchange_.from[from], &target = exchange_.to[to];
    if (giver(from, to) != from) return {};
    return {common_rows(exchange_.lengths, exchange_.samples, source.tokens, target.tokens),
            common_columns(exchange_.block_bytes, source, target), row_bytes_ / source.column_parts,
            row_bytes_ / target.column_parts};
  }

  std::span<std::byte> take(int64_t bytes) {
    STRATA_CHECK(static_cast<size_t>(bytes) <= scratch_.size(), "{} bytes of rows, {} are left of {}", bytes,
                 scratch_.size(), exchange_.scratch.size());
    const std::span<std::byte> taken = scratch_.first(static_cast<size_t>(bytes));
    scratch_ = scratch_.subspan(static_cast<size_t>(bytes));
    return taken;
  }

  std::span<const std::byte> pack(size_t to) {
    const Transfer going = transfer(member_, to);
    if (going.rows.empty()) return {};
    const int64_t bytes = going.bytes();
    if (going.rows.size() == 1 && going.whole_rows())
      return {exchange_.source + going.rows[0].first * going.first_row_bytes, static_cast<size_t>(bytes)};
    for (const auto& [holding, span] : packed_)  // members that want the same
      if (holding == exchange_.to[to]) return span;
    const std::span<std::byte> place = take(bytes);
    int64_t end = 0;
    going.for_pieces([&](int64_t first, int64_t, int64_t count) {
      std::memcpy(place.data() + end, exchange_.source + first, static_cast<size_t>(count));
      end += count;
    });
    packed_.push_back({exchange_.to[to], place});
    return place;
  }

  static bool lies_together(const Transfer& arriving) {
    return arriving.rows.size() == 1 && arriving.columns.size() == 1 &&
           arriving.columns[0].bytes == arriving.second_row_bytes;
  }

  std::span<std::byte> place_for(const Transfer& arriving) {
    if (arriving.rows.empty()) return {};
    if (!lies_together(arriving)) return take(arriving.bytes());
    return {exchange_.target + arriving.rows[0].second * arriving.second_row_bytes,
            static_cast<size_t>(arriving.bytes())};
  }

  void unpack(const Transfer& arrived, std::span<const std::byte> bytes) {
    if (arrived.rows.empty() || lies_together(arrived)) return;
    int64_t begin = 0;
    arrived.for_pieces([&](int64_t, int64_t second, int64_t count) {
      std::memcpy(exchange_.target + second, bytes.data() + begin, static_cast<size_t>(count));
      begin += count;
    });
  }

  const RowExchange& exchange_;
  size_t member_;
  int64_t row_bytes_ = 0;
  std::span<std::byte> scratch_;
  std::vector<std::pair<Holding, std::span<const std::byte>>> packed_;
};

}  // namespace

void exchange_rows(Comm& comm, const Group& group, const RowExchange& exchange) {
  Exchange(group.member, exchange).run(comm, group);
}

void copy_rows(const RowExchange& exchange, int member) { Exchange(member, exchange).copy_own(); }

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/program/report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "strata/program/memory.h"
#include "strata/program/testing.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

TEST(Report, LedgerListsEveryKindAtThePeakAndItsSum) {
  Program program;
  program.name = "step";
  program.bookings = {{"weights", 1024, BookingKind::kParameter, Tier::kDevice, true, -1},
                      {"early", 4096, BookingKind::kActivation, Tier::kDevice, false, -1},
                      {"late", 512, BookingKind::kGradient, Tier::kDevice, false, -1}};
  program.instructions.resize(2);
  program.instructions[0].uses = {{1, Access::kWrite, Role::kTensor, 0}};
  program.instructions[1].uses = {{2, Access::kWrite, Role::kGradient, 0}};
  pack(program);
  EXPECT_EQ(describe_ledger(program),
            "device memory in bytes, fullest at instruction 0\n"
            "  parameters              1024    1.0 KiB\n"
            "  activations             4096    4.0 KiB\n"
            "  alive                   5120    5.0 KiB\n"
            "  arena                   5120    5.0 KiB\n");
}

TEST(Report, ListingHasEveryInstructionOnItsLine) {
  const CompileInput input = tiny_input(tiny_gpt2(1, false), {2, 1, 2, 2}, 1);
  const ProgramSet set = compile(input, {ProgramKind::kStep});
  const Program& program = set.programs.front();
  const std::string text = describe_program(program, declare_layers(input.model));
  EXPECT_THAT(text, HasSubstr(fmt::format("program step of rank 0: {} instructions", program.instructions.size())));
  EXPECT_THAT(text, HasSubstr("group tensor: ranks 0 1\n"));
  EXPECT_THAT(text, HasSubstr("group data: ranks 0 2\n"));
  EXPECT_THAT(text, HasSubstr("    1  compute       run embedding.embed forward mb0 >embedding.x.mb0 "
                              "<embedding.parameters <batch <scalars\n"));
  EXPECT_THAT(text, HasSubstr("tensor        all-reduce 1024 elements over tensor"));
  EXPECT_THAT(text, HasSubstr("update chunk 0 if-finite"));
  const auto groups = static_cast<int64_t>(program.groups.size()),
             instructions = static_cast<int64_t>(program.instructions.size());
  const int64_t ledger_lines = std::ranges::count(describe_ledger(program), '\n');
  EXPECT_EQ(std::ranges::count(text, '\n'), 1 + groups + instructions + ledger_lines);
}

// Every field of a set, changed alone, gives another digest.
TEST(Report, DigestChangesWithAnything) {
  const ProgramSet set = compile(tiny_input(tiny_gpt2(1, true), {1, 1, 2, 3}, 1), {ProgramKind::kStep});
  std::set<std::string> digests = {program_digest(set)};
  EXPECT_EQ(program_digest(set), *digests.begin());
  size_t changes = 0;
  const auto change = [&](auto&& body) {
    ProgramSet other = set;
    body(other, other.programs.front());
    digests.insert(program_digest(other));
    ++changes;
    EXPECT_EQ(digests.size(), changes + 1) << "change " << changes << " is not seen";
  };
  change([](ProgramSet& s, Program&) { s.rank = 1; });
  change([](ProgramSet& s, Program&) { s.chunks[1].elements += 64; });
  change([](ProgramSet& s, Program&) { s.chunks[1].tensors[0].offset += 16; });
  change([](ProgramSet& s, Program&) { std::swap(s.parameter_booking[0], s.parameter_booking[1]); });
  change([](ProgramSet& s, Program&) { s.state_booking[0].pop_back(); });
  change([](ProgramSet& s, Program&) { s.arena_bytes[0] += 64; });
  change([](ProgramSet&, Program& p) { p.arena_bytes[1] += 64; });
  change([](ProgramSet&, Program& p) { p.bookings.back().offset += 64; });
  change([](ProgramSet&, Program& p) { p.bookings.back().bytes += 1; });
  change([](ProgramSet&, Program& p) { p.bookings.back().name += "x"; });
  change([](ProgramSet&, Program& p) { p.bookings.back().kind = BookingKind::kCache; });
  change([](ProgramSet&, Program& p) { p.bookings.back().tier = Tier::kDisk; });
  change([](ProgramSet&, Program& p) { p.bookings.back().persistent = true; });
  change([](ProgramSet&, Program& p) { p.groups[0].ranks.push_back(7); });
  change([](ProgramSet&, Program& p) { p.instructions[3].queue = Queue::kToDisk; });
  change([](ProgramSet&, Program& p) { p.instructions[3].op = Op::kCopy; });
  change([](ProgramSet&, Program& p) { p.instructions[3].direction = Direction::kDecode; });
  change([](ProgramSet&, Program& p) { p.instructions[3].collective = CollectiveKind::kReduceScatter; });
  change([](ProgramSet&, Program& p) { p.instructions[3].scalar = ScalarOp::kFinishNorm; });
  change([](ProgramSet&, Program& p) { p.instructions[3].if_finite = true; });
  change([](ProgramSet&, Program& p) { p.instructions[3].layer = 5; });
  change([](ProgramSet&, Program& p) { p.instructions[3].segment = 5; });
  change([](ProgramSet&, Program& p) { p.instructions[3].recomputed = 5; });
  change([](ProgramSet&, Program& p) { p.instructions[3].micro_batch = 5; });
  change([](ProgramSet&, Program& p) { p.instructions[3].chunk = 5; });
  change([](ProgramSet&, Program& p) { p.instructions[3].group = 5; });
  change([](ProgramSet&, Program& p) { p.instructions[3].peer = 5; });
  change([](ProgramSet&, Program& p) { p.instructions[3].elements += 1; });
  change([](ProgramSet&, Program& p) { p.instructions[3].uses[0].index = 9; });
  change([](ProgramSet&, Program& p) { p.instructions[3].uses[0].access = Access::kReadWrite; });
  change([](ProgramSet&, Program& p) { p.instructions[3].waits.push_back({Queue::kCompute, 1}); });
  change([](ProgramSet&, Program& p) { std::swap(p.instructions[3], p.instructions[4]); });
  const auto waiting =
      std::ranges::find_if(set.programs.front().instructions, [](const Instruction& i) { return !i.waits.empty(); });
  const auto wait = static_cast<size_t>(waiting - set.programs.front().instructions.begin());
  change([&](ProgramSet&, Program& p) { p.instructions[wait].waits[0].count += 1; });
  change([&](ProgramSet&, Program& p) { p.instructions[wait].waits[0].queue = Queue::kToDisk; });
}

}  // namespace
}  // namespace strata

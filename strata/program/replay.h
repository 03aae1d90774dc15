// SPDX-License-Identifier: Apache-2.0
// Executes the programs of all ranks as events: queues in order, waits, rendezvous of sends and collectives. Times them
// under any duration function and finds what can never run. Pure.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "strata/program/program.h"

namespace strata {

using Duration = std::function<double(const Program& program, const Instruction& instruction)>;

struct ReplayResult {
  double seconds = 0;
  std::vector<double> rank_seconds;
  std::vector<std::string> blocked;  // instructions that never started; empty when everything ran
};
// programs[r] is rank r's; all with the same name.
ReplayResult replay(std::span<const Program> programs, const Duration& duration);

// Every instruction costs one second.
double unit_duration(const Program& program, const Instruction& instruction);

// The cross-rank part of the checker: all programs run to the end, and members of a group issue the same collectives.
// Throws nothing; returns the list of problems, empty when right.
std::vector<std::string> check_world(std::span<const Program> programs);

}  // namespace strata

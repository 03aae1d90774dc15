// SPDX-License-Identifier: Apache-2.0
// Measured instructions as a Chrome trace: a JSON array of complete events, one row per queue in order of first use.
// Open the file in chrome://tracing or https://ui.perfetto.dev. Pure but for the one file, written whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace strata {

struct TraceRecord {
  std::string name;      // "block 3 mlp forward"
  std::string category;  // kind of instruction: "run", "copy", ...
  std::string queue;     // "compute", "host", ...
  double start_us = 0;   // since the start of the trace
  double duration_us = 0;
  std::vector<std::pair<std::string, int64_t>> args;  // shown when the event is selected: step, bytes, tokens
};

// `rank` is shown as the process.
void write_trace(const std::filesystem::path& path, int64_t rank, const std::vector<TraceRecord>& records);

}  // namespace strata

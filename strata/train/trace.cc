// SPDX-License-Identifier: Apache-2.0
#include "strata/train/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "strata/base/atomic_file.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

// One event per line, so that a trace can be searched and compared.
void append_event(std::string& text, const Json& event) { text += (text.empty() ? "[\n" : ",\n") + event.dump(); }

Json name_event(std::string_view what, int64_t rank, size_t queue, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", queue}, {"args", {{"name", name}}}};
}

Json complete_event(const TraceRecord& record, int64_t rank, size_t queue) {
  Json args = Json::object();
  for (const auto& [name, value] : record.args) args[name] = value;
  return {{"name", record.name},   {"cat", record.category},    {"ph", "X"},   {"pid", rank}, {"tid", queue},
          {"ts", record.start_us}, {"dur", record.duration_us}, {"args", args}};
}

}  // namespace

void write_trace(const std::filesystem::path& path, int64_t rank, const std::vector<TraceRecord>& records) {
  std::string text;
  append_event(text, name_event("process_name", rank, 0, fmt::format("rank {}", rank)));
  std::vector<std::string> queues;
  for (const TraceRecord& record : records) {
    const auto known = std::find(queues.begin(), queues.end(), record.queue);
    const auto queue = static_cast<size_t>(known - queues.begin());
    if (known == queues.end()) {
      queues.push_back(record.queue);
      append_event(text, name_event("thread_name", rank, queue, record.queue));
    }
    append_event(text, complete_event(record, rank, queue));
  }
  write_file_atomically(path, text + "\n]\n");
}

}  // namespace strata

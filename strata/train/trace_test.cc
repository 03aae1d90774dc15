// SPDX-License-Identifier: Apache-2.0
#include "strata/train/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "strata/base/file.h"
#include "strata/base/testing.h"

namespace strata {
namespace {

using nlohmann::json;

TEST(Trace, IsAnArrayOfCompleteEventsWithNamedQueues) {
  TemporaryFolder folder;
  write_trace(folder / "trace.json", 3,
              {{"mlp", "run", "compute", 0.5, 2.25, {{"tokens", 2048}}},
               {"save", "copy", "host", 1, 4, {}},
               {"head", "run", "compute", 3, 1, {}}});
  const json events = json::parse(read_text_file(folder / "trace.json"));
  const json expected = json::parse(R"([
    {"name": "process_name", "ph": "M", "pid": 3, "tid": 0, "args": {"name": "rank 3"}},
    {"name": "thread_name", "ph": "M", "pid": 3, "tid": 0, "args": {"name": "compute"}},
    {"name": "mlp", "cat": "run", "ph": "X", "pid": 3, "tid": 0, "ts": 0.5, "dur": 2.25, "args": {"tokens": 2048}},
    {"name": "thread_name", "ph": "M", "pid": 3, "tid": 1, "args": {"name": "host"}},
    {"name": "save", "cat": "copy", "ph": "X", "pid": 3, "tid": 1, "ts": 1.0, "dur": 4.0, "args": {}},
    {"name": "head", "cat": "run", "ph": "X", "pid": 3, "tid": 0, "ts": 3.0, "dur": 1.0, "args": {}}
  ])");
  EXPECT_EQ(events, expected) << events.dump(1);
}

TEST(Trace, OfNothingIsStillAnArray) {
  TemporaryFolder folder;
  write_trace(folder / "trace.json", 0, {});
  EXPECT_EQ(json::parse(read_text_file(folder / "trace.json")).size(), 1U);
}

TEST(Trace, NamesAFileThatCannotBe) {
  TemporaryFolder folder;
  EXPECT_THAT(error_message(ErrorKind::kBadInput, [&] { write_trace(folder / "none/trace.json", 0, {}); }),
              ::testing::HasSubstr("none/trace.json"));
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "strata/base/testing_terminal.h"

namespace strata {
namespace {

using ::testing::MatchesRegex;

TEST(FormatBar, FillsInProportion) {
  EXPECT_EQ(format_bar(0, 10), "[>         ]");
  EXPECT_EQ(format_bar(0.55, 10), "[=====>    ]");
  EXPECT_EQ(format_bar(0.999, 10), "[=========>]");
  EXPECT_EQ(format_bar(1, 10), "[==========]");
  EXPECT_EQ(format_bar(7, 10), "[==========]");
}

TEST(TerminalLine, RewritesOneLineCutToTheWidth) {
  PseudoTerminal terminal(11);
  {
    TerminalLine line(terminal.out());
    EXPECT_TRUE(line.is_terminal());
    EXPECT_EQ(line.width(), 10);
    line.show("abcdefghijklm");
    EXPECT_EQ(terminal.text(), "\rabcdefghij\x1b[K");
    line.print("kept whole, however long");
    EXPECT_EQ(terminal.text(), "\r\x1b[Kkept whole, however long\n");
    line.show("a");
    EXPECT_EQ(terminal.text(), "\ra\x1b[K");
  }
  EXPECT_EQ(terminal.text(), "\n");
}

TEST(TerminalLine, AFileGetsPlainLines) {
  PlainOutput file;
  {
    TerminalLine line(file.out());
    EXPECT_FALSE(line.is_terminal());
    line.print("one");
    line.print("two");
  }
  EXPECT_EQ(file.text(), "one\ntwo\n");
}

TEST(TerminalLine, ADumbTerminalGetsPlainLines) {
  PseudoTerminal terminal(80);
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(TerminalLine(terminal.out()).is_terminal());
  ::setenv("TERM", "xterm", 1);
  EXPECT_TRUE(TerminalLine(terminal.out()).is_terminal());
}

TEST(TerminalLineDeathTest, AFileHasNoLiveLine) {
  EXPECT_DEATH(
      {
        PlainOutput file;
        TerminalLine(file.out()).show("a");
      },
      "needs a terminal");
}

TEST(Progress, RedrawsOnATerminalAtMostTenTimesASecond) {
  PseudoTerminal terminal(100);
  Progress progress(terminal.out(), "tokenise", "documents", 2000);
  for (int64_t done = 0; done < 500; ++done) progress.update(done);  // far less than 100 ms
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  progress.update(500);
  EXPECT_THAT(terminal.text(),
              MatchesRegex("\rtokenise \\[=====> +\\] 25%  500 of 2.0k documents  eta [0-9.]+ m?s\x1b\\[K"));
  progress.finish(2000);
  EXPECT_THAT(terminal.text(), MatchesRegex("\r\x1b\\[Ktokenise: 2.0k documents in [0-9.]+ m?s\n"));
}

TEST(Progress, AFileGetsTheClosingLineOfShortWork) {
  PlainOutput file;
  Progress progress(file.out(), "tokenise", "documents", 100);
  for (int64_t done = 0; done <= 100; ++done) progress.update(done);
  progress.finish(100);
  EXPECT_THAT(file.text(), MatchesRegex("tokenise: 100 documents in [0-9.]+ [mun]?s\n"));
}

}  // namespace
}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/loss_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "strata/base/testing.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int64_t count(const std::string& text, std::string_view part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

// The coordinates of the n-th drawn line: what stands in its d="...".
std::string line(const std::string& svg, int index) {
  size_t at = 0;
  for (int i = 0; i <= index; ++i) at = svg.find("stroke-linejoin", at + 1);
  const size_t begin = svg.find(" d=\"", at) + 4;
  return svg.substr(begin, svg.find('"', begin) - begin);
}

// The plot spans x 80..930 and y 60..480.
TEST(LossCurve, PlacesPointsOnTheAxes) {
  const std::string svg = loss_curve_svg("run", {{0, 4.0}, {5, 1.0}, {10, 2.0}}, {{10, 3.0}});
  EXPECT_EQ(line(svg, 0), "M80.0 60.0L505.0 480.0L930.0 340.0");
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"930.0\" cy=\"200.0\""));
  for (const char* tick : {">1.0<", ">1.5<", ">4.0<", ">0<", ">2<", ">10<", ">step<", ">loss<", ">validation<"}) {
    EXPECT_THAT(svg, HasSubstr(tick));
  }
}

TEST(LossCurve, TheRunningMeanFollowsTheLossMoreSlowly) {
  std::vector<MetricPoint> points;
  for (int64_t step = 1; step <= 400; ++step) points.push_back({step, step % 2 == 0 ? 3.0 : 1.0});
  const std::string svg = loss_curve_svg("run", points, {});
  // A window of 4: decay 3/4. Of an alternation by +-1 its mean is left with (1 - 3/4) / (1 + 3/4) = 1/7 in the limit,
  // so the last point is 2 + 1/7 on an axis 1..3: 480 - 420 * (1 + 1/7) / 2 = 240.
  EXPECT_TRUE(line(svg, 1).ends_with("L930.0 240.0")) << line(svg, 1);
}

TEST(LossCurve, LossesThatAreNotFiniteLeaveAGap) {
  const std::string svg = loss_curve_svg("run", {{0, 2.0}, {1, 1.0}, {2, kNan}, {3, 1.0}, {4, 2.0}}, {{4, HUGE_VAL}});
  EXPECT_EQ(count(line(svg, 0), "M"), 2);
  EXPECT_EQ(count(line(svg, 1), "M"), 1);  // the mean goes on
  EXPECT_EQ(count(svg, "<circle"), 0);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(LossCurve, ThinsALongRunButKeepsItsExtremes) {
  std::vector<MetricPoint> points;
  for (int64_t step = 1; step <= 200000; ++step)
    points.push_back({step, step == 123456 ? 9.0 : 2.0 + 0.1 * static_cast<double>(step % 7)});
  points[150000].value = kNan;
  const std::string svg = loss_curve_svg("run", points, {});
  EXPECT_LT(svg.size(), 100000U);
  EXPECT_TRUE(line(svg, 0).find("L604.7 112.5") != std::string::npos);  // the spike: 9 on an axis 2..10
  EXPECT_GE(count(line(svg, 0), " 480.0"), 849);  // 2.0, the lowest loss of all 850 columns but the one with the gap
  EXPECT_GE(count(line(svg, 0), " 448.5"), 847);  // 2.6, the highest of all but those of the gap, the spike and the end
  EXPECT_EQ(count(line(svg, 0), "M"), 2);
}

TEST(LossCurve, DrawsRunsOfNoOneAndEqualPoints) {
  for (const std::vector<MetricPoint>& points : {std::vector<MetricPoint>{},
                                                 {{1, 2.5}},
                                                 {{1, 2.5}, {2, 2.5}},
                                                 {{1, 0.0}},
                                                 {{1, kNan}},
                                                 {{1, 1e30}, {2, -1e30}}}) {
    const std::string svg = loss_curve_svg("run", points, {});
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

TEST(LossCurve, EscapesTheTitle) { EXPECT_THAT(loss_curve_svg("a<b & c>d", {}, {}), HasSubstr("a&lt;b &amp; c&gt;d")); }

TEST(LossCurve, IsDrawnFromTheCsv) {
  TemporaryFolder folder;
  {
    CsvMetrics csv(folder / "metrics.csv", 0);
    csv.write({.step = 1, .loss = 4.0});
    csv.write({.step = 2, .loss = 3.0, .validation_loss = 3.5});
  }
  write_loss_curve(folder / "loss.svg", "run", folder / "metrics.csv");
  EXPECT_EQ(read_text_file(folder / "loss.svg"), loss_curve_svg("run", {{1, 4.0}, {2, 3.0}}, {{2, 3.5}}));
}

}  // namespace
}  // namespace strata

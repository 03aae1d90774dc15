// SPDX-License-Identifier: Apache-2.0
#include "strata/train/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "strata/base/atomic_file.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr double kWidth = 960, kHeight = 540;
constexpr double kLeft = 80, kRight = 30, kTop = 60, kBottom = 60;  // margins around the plot
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
constexpr const char* kRaw = "#b8cbe0";
constexpr const char* kMean = "#1f5c99";
constexpr const char* kValidation = "#c2571a";

// An interval of values and its round ticks.
struct Axis {
  double low = 0;
  double high = 1;
  double tick = 1;

  double fraction(double value) const { return (value - low) / (high - low); }
};

// 1, 2 or 5 times a power of ten that divides `span` into at most `num_ticks` parts.
double round_tick(double span, int num_ticks) {
  const double rough = span / num_ticks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

Axis step_axis(const std::vector<MetricPoint>& training, const std::vector<MetricPoint>& validation) {
  int64_t last = 1;
  for (const auto* points : {&training, &validation}) {
    if (!points->empty()) last = std::max(last, points->back().step);
  }
  return {0, static_cast<double>(last), std::max(1.0, round_tick(static_cast<double>(last), 8))};
}

// Borders on ticks around every finite value.
Axis loss_axis(const std::vector<MetricPoint>& training, const std::vector<MetricPoint>& validation) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto* points : {&training, &validation}) {
    for (const MetricPoint& point : *points) {
      if (!std::isfinite(point.value)) continue;
      low = std::min(low, point.value);
      high = std::max(high, point.value);
    }
  }
  if (low > high) return {0, 1, 0.2};
  const double span = std::max(high - low, 1e-6 * std::max(1.0, std::abs(high)));
  const double tick = round_tick(span, 6);
  Axis axis = {std::floor(low / tick) * tick, std::ceil(high / tick) * tick, tick};
  if (axis.high - axis.low < tick / 2) axis.high = axis.low + tick;
  return axis;
}

struct Frame {
  Axis steps;
  Axis losses;

  double x(double step) const { return kLeft + kPlotWidth * steps.fraction(step); }
  double y(double loss) const { return kTop + kPlotHeight * (1 - losses.fraction(loss)); }
};

// Running mean with a window that grows with the run: 1 % of the steps, weights falling off exponentially.
std::vector<MetricPoint> running_mean(const std::vector<MetricPoint>& points) {
  const double window = std::max(1.0, static_cast<double>(points.size()) / 100);
  const double decay = 1 - 1 / window;
  std::vector<MetricPoint> means;
  double sum = 0, weight = 0;
  for (const MetricPoint& point : points) {
    if (!std::isfinite(point.value)) continue;
    sum = decay * sum + point.value;
    weight = decay * weight + 1;
    means.push_back({point.step, sum / weight});
  }
  return means;
}

// At most two points for each column of pixels: the lowest and the highest, in order. Others stay as they are.
std::vector<MetricPoint> thinned(const std::vector<MetricPoint>& points, const Frame& frame) {
  if (static_cast<double>(points.size()) <= 2 * kPlotWidth) return points;
  const auto column = [&frame](const MetricPoint& point) {
    return std::floor(frame.x(static_cast<double>(point.step)));
  };
  std::vector<MetricPoint> kept;
  for (auto begin = points.begin(); begin != points.end();) {
    const auto end =
        std::find_if(begin, points.end(), [&](const MetricPoint& point) { return column(point) != column(*begin); });
    const bool finite = std::all_of(begin, end, [](const MetricPoint& point) { return std::isfinite(point.value); });
    auto [low, high] = std::minmax_element(begin, end, [](const auto& a, const auto& b) { return a.value < b.value; });
    if (!finite)
      low = high = std::find_if_not(begin, end, [](const MetricPoint& point) { return std::isfinite(point.value); });
    kept.push_back(low < high ? *low : *high);
    if (low != high) kept.push_back(low < high ? *high : *low);
    begin = end;
  }
  return kept;
}

void draw_line(std::string& svg, const std::vector<MetricPoint>& points, const Frame& frame, std::string_view style) {
  svg += "<path fill=\"none\" stroke-linejoin=\"round\" ";
  svg += style;
  svg += " d=\"";
  char command = 'M';
  for (const MetricPoint& point : points) {
    if (!std::isfinite(point.value)) {
      command = 'M';
      continue;
    }
    fmt::format_to(std::back_inserter(svg), "{}{:.1f} {:.1f}", command, frame.x(static_cast<double>(point.step)),
                   frame.y(point.value));
    command = 'L';
  }
  svg += "\"/>\n";
}

void draw_points(std::string& svg, const std::vector<MetricPoint>& points, const Frame& frame) {
  for (const MetricPoint& point : points) {
    if (!std::isfinite(point.value)) continue;
    fmt::format_to(std::back_inserter(svg), "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n",
                   frame.x(static_cast<double>(point.step)), frame.y(point.value), kValidation);
  }
}

void draw_text(std::string& svg, double x, double y, std::string_view attributes, std::string_view text) {
  fmt::format_to(std::back_inserter(svg), "<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes, text);
}

// Ticks, their numbers and the lines of the grid, each axis with its name.
void draw_axes(std::string& svg, const Frame& frame) {
  const double bottom = kTop + kPlotHeight, right = kLeft + kPlotWidth;
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(frame.losses.tick) - 1e-9)), 0, 9);
  for (double loss = frame.losses.low; loss <= frame.losses.high + frame.losses.tick / 2; loss += frame.losses.tick) {
    const double y = frame.y(loss);
    fmt::format_to(std::back_inserter(svg), "<path stroke=\"#e4e4e4\" d=\"M{} {:.1f}H{}\"/>\n", kLeft, y, right);
    draw_text(svg, kLeft - 10, y + 4, "text-anchor=\"end\"", fmt::format("{:.{}f}", loss, decimals));
  }
  for (double step = 0; step <= frame.steps.high * (1 + 1e-9); step += frame.steps.tick) {
    const double x = frame.x(step);
    fmt::format_to(std::back_inserter(svg), "<path stroke=\"#888\" d=\"M{:.1f} {}v6\"/>\n", x, bottom);
    draw_text(svg, x, bottom + 22, "text-anchor=\"middle\"", format_count(std::llround(step)));
  }
  fmt::format_to(std::back_inserter(svg), "<path fill=\"none\" stroke=\"#888\" d=\"M{} {}V{}H{}\"/>\n", kLeft, kTop,
                 bottom, right);
  draw_text(svg, kLeft + kPlotWidth / 2, kHeight - 14, "text-anchor=\"middle\"", "step");
  draw_text(svg, 0, 0,
            fmt::format("text-anchor=\"middle\" transform=\"translate(22 {}) rotate(-90)\"", kTop + kPlotHeight / 2),
            "loss");
}

void draw_legend(std::string& svg, bool has_validation) {
  const auto entry = [&svg](double x, const char* colour, const char* name) {
    fmt::format_to(std::back_inserter(svg), "<rect x=\"{}\" y=\"{}\" width=\"16\" height=\"4\" fill=\"{}\"/>\n", x,
                   kTop - 18, colour);
    draw_text(svg, x + 22, kTop - 11, "", name);
  };
  entry(kWidth - kRight - 330, kRaw, "training");
  entry(kWidth - kRight - 230, kMean, "running mean");
  if (has_validation) entry(kWidth - kRight - 95, kValidation, "validation");
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      default: out += letter;
    }
  }
  return out;
}

}  // namespace

std::string loss_curve_svg(std::string_view title, const std::vector<MetricPoint>& training,
                           const std::vector<MetricPoint>& validation) {
  const Frame frame = {step_axis(training, validation), loss_axis(training, validation)};
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"13\" fill=\"#333\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/>\n",
      kWidth, kHeight);
  draw_text(svg, kLeft, 32, "font-size=\"17\"", escaped(title));
  draw_axes(svg, frame);
  draw_legend(svg, !validation.empty());
  draw_line(svg, thinned(training, frame), frame, fmt::format("stroke=\"{}\" stroke-width=\"1\"", kRaw));
  draw_line(svg, thinned(running_mean(training), frame), frame, fmt::format("stroke=\"{}\" stroke-width=\"2\"", kMean));
  draw_points(svg, validation, frame);
  return svg + "</svg>\n";
}

void write_loss_curve(const std::filesystem::path& svg, std::string_view title,
                      const std::filesystem::path& metrics_csv) {
  write_file_atomically(svg, loss_curve_svg(title, read_csv_column(metrics_csv, "loss"),
                                            read_csv_column(metrics_csv, "validation_loss")));
}

}  // namespace strata

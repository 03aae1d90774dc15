// SPDX-License-Identifier: Apache-2.0
// A picture of a run (SVG): training loss of every step, pale, its running mean over it, validation losses as points,
// axes with round ticks. Drawn from metrics.csv, so that it covers all parts of a resumed run. Losses that are not
// finite leave a gap. Long runs are thinned to the lowest and highest loss of each column of pixels. Pure but for the
// one file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "strata/train/csv_metrics.h"

namespace strata {

// Points in the order of their steps. `title` is plain text.
std::string loss_curve_svg(std::string_view title, const std::vector<MetricPoint>& training,
                           const std::vector<MetricPoint>& validation);

// Reads the losses of `metrics_csv` and writes the picture, whole or not at all.
void write_loss_curve(const std::filesystem::path& svg, std::string_view title,
                      const std::filesystem::path& metrics_csv);

}  // namespace strata

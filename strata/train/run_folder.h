// SPDX-License-Identifier: Apache-2.0
// The folder of a run (docs/formats/run-folder.md): config.toml, plan.json, program.txt, environment.json, metrics.csv, tensorboard/,
// checkpoints/, model/, loss.svg. What a process finds there is checked before it is continued or overwritten.
#pragma once

#include <filesystem>

#include "strata/train/workload.h"

namespace strata {

class RunFolder {
 public:
  // Creates the folder. Throws Error when it cannot be written.
  explicit RunFolder(const std::string& path);

  std::filesystem::path path() const { return path_; }
  std::filesystem::path metrics_csv() const { return path_ / "metrics.csv"; }
  std::filesystem::path tensorboard() const { return path_ / "tensorboard"; }
  std::filesystem::path model() const { return path_ / "model"; }
  std::filesystem::path loss_curve() const { return path_ / "loss.svg"; }
  std::filesystem::path trace() const { return path_ / "trace.json"; }
  std::filesystem::path tokens() const { return path_ / "tokens"; }

  // Writes config, plan, program listing with digest, and the environment (versions, host, cores, command-independent).
  void describe(const Workload& workload) const;

 private:
  std::filesystem::path path_;
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
// The folder of a run (docs/formats/run-folder.md): config.toml, plan.json, program.txt, environment.json, metrics.csv,
// tensorboard/, checkpoints/, model/, loss.svg. One process trains in it at a time.
#pragma once

#include <filesystem>

#include "strata/base/file.h"
#include "strata/train/workload.h"

namespace strata {

class RunFolder {
 public:
  RunFolder() = default;
  // Creates the folder. Throws Error when it cannot be made or written.
  explicit RunFolder(const std::string& path);
  // The same for a process that will train in it: refuses while another one does, and removes what killed ones left
  // half-written.
  static RunFolder claim(const std::string& path);

  std::filesystem::path path() const { return path_; }
  std::filesystem::path tensorboard() const { return path_ / "tensorboard"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path model() const { return path_ / "model"; }
  std::filesystem::path loss_curve() const { return path_ / "loss.svg"; }
  std::filesystem::path trace(int rank) const {
    return path_ / (rank == 0 ? "trace.json" : "trace-" + std::to_string(rank) + ".json");
  }

  // Writes config, plan, program listing with digest, and the environment (versions, cores).
  void describe(const Workload& workload) const;

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;
};

}  // namespace strata

// SPDX-License-Identifier: Apache-2.0
#include "strata/train/run_folder.h"

#include <sys/utsname.h>

#include <system_error>

#include <nlohmann/json.hpp>

#include "strata/base/atomic_file.h"
#include "strata/base/error.h"
#include "strata/program/report.h"

namespace strata {
namespace {

nlohmann::json environment(const Workload& workload) {
  utsname system{};
  uname(&system);
  return {{"format", "strata-environment"}, {"version", 1}, {"system", system.sysname}, {"release", system.release}, {"machine", system.machine},
          {"threads", workload.input.plan.threads}, {"available_threads", available_threads()},
          {"compiler", __VERSION__}, {"program_digest", program_digest(workload.programs)}};
}

}  // namespace

RunFolder::RunFolder(const std::string& path) : path_(path) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) throw_failed_run("run.directory {} cannot be created: {}", path, error.message());
}

void RunFolder::describe(const Workload& workload) const {
  write_file_atomically(path_ / "config.toml", to_toml(workload.config));
  write_file_atomically(path_ / "plan.json", to_json(workload.input.plan).dump(2) + "\n");
  write_file_atomically(path_ / "program.txt", describe_program(workload.step(), workload.layers));
  write_file_atomically(path_ / "environment.json", environment(workload).dump(2) + "\n");
}

}  // namespace strata

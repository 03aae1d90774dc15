// SPDX-License-Identifier: Apache-2.0
#include "strata/train/run_folder.h"

#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <regex>
#include <system_error>

#include "strata/base/atomic_file.h"
#include "strata/base/error.h"
#include "strata/program/report.h"

namespace strata {
namespace {

nlohmann::json environment(const Workload& workload) {
  utsname system{};
  uname(&system);
  return {{"format", "strata-environment"},
          {"version", 1},
          {"system", system.sysname},
          {"release", system.release},
          {"machine", system.machine},
          {"threads", workload.input.plan.threads},
          {"available_threads", available_threads()},
          {"compiler", __VERSION__},
          {"program_digest", program_digest(workload.programs)}};
}

// Temporary names of what is written here and in tokens/ (base/atomic_file.h); checkpoints have their own (ckpt/).
void remove_unfinished(const std::filesystem::path& folder, const std::string& names) {
  const std::regex pattern("(" + names + ")\\.tmp-[0-9]+-[0-9]+");
  std::error_code error;
  std::vector<std::filesystem::path> unfinished;
  for (std::filesystem::directory_iterator entry(folder, error); !error && entry != std::filesystem::end(entry);
       entry.increment(error))
    if (std::regex_match(entry->path().filename().string(), pattern)) unfinished.push_back(entry->path());
  for (const std::filesystem::path& path : unfinished) {
    std::filesystem::remove_all(path, error);
    if (error) throw_file_error("remove", path, error.value());
  }
}

}  // namespace

RunFolder::RunFolder(const std::string& path) : path_(path) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) throw_file_error("create run.directory", path_, error.value());
  if (::access(path_.c_str(), W_OK | X_OK) != 0) throw_file_error("write to run.directory", path_, errno);
}

RunFolder RunFolder::claim(const std::string& path) {
  RunFolder folder(path);
  folder.lock_ = open_for_reading(folder.path_);
  // A file system without locks gives another error; there nothing is claimed.
  if (::flock(folder.lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw_bad_input("another process trains in {}: wait for its end, or choose another run.directory", path);
  remove_unfinished(
      folder.path_,
      "config\\.toml|plan\\.json|program\\.txt|environment\\.json|loss\\.svg|trace(-[0-9]+)?\\.json|model|.*\\.csv");
  remove_unfinished(folder.path_ / "tokens", "train\\.tokens|validation\\.tokens");
  return folder;
}

void RunFolder::describe(const Workload& workload) const {
  write_file_atomically(path_ / "config.toml", to_toml(workload.config));
  write_file_atomically(path_ / "plan.json", to_json(workload.input.plan).dump(2) + "\n");
  write_file_atomically(path_ / "program.txt", describe_program(workload.step(), workload.layers));
  write_file_atomically(path_ / "environment.json", environment(workload).dump(2) + "\n");
}

}  // namespace strata

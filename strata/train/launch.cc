// SPDX-License-Identifier: Apache-2.0
#include "strata/train/launch.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "strata/base/error.h"
#include "strata/train/workload.h"

namespace strata {
namespace {

// Open MPI reads these; other libraries do by default what they ask for.
constexpr std::pair<const char*, const char*> kSettings[] = {{"OMPI_MCA_hwloc_base_binding_policy", "none"},
                                                             {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                                             {"OMPI_MCA_odls_base_sigkill_timeout", "600"},
                                                             {"OMPI_MCA_orte_abort_print_stack", "0"}};

void set_environment(int64_t num_ranks) {
  for (const auto& [name, value] : kSettings) ::setenv(name, value, 0);
  if (num_ranks > available_threads()) ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  if (::geteuid() != 0) return;
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
}

}  // namespace

void start_ranks(const TrainConfig& config, int64_t num_ranks, const std::vector<std::string>& command) {
  RankPosition first;
  first.size = num_ranks;
  first.on_node = static_cast<int>(num_ranks);
  make_workload(config, first);
  set_environment(num_ranks);
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(num_ranks),
                                    std::filesystem::read_symlink("/proc/self/exe").string()};
  words.insert(words.end(), command.begin() + 1, command.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  throw_failed_run("mpirun does not start ({}): install an MPI library such as Open MPI, or start the ranks by hand",
                   std::strerror(errno));
}

}  // namespace strata

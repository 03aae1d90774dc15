// SPDX-License-Identifier: Apache-2.0
#include "strata/train/launch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "strata/base/error.h"
#include "strata/train/ranks.h"
#include "strata/train/workload.h"

namespace strata {
namespace {

constexpr int kNoProgram = 127;

// Open MPI reads these; other libraries do by default what they ask for.
constexpr std::pair<const char*, const char*> kSettings[] = {{"OMPI_MCA_hwloc_base_binding_policy", "none"},
                                                             {"OMPI_MCA_rmaps_base_oversubscribe", "1"}};

void set_environment(int64_t num_ranks) {
  for (const auto& [name, value] : kSettings) ::setenv(name, value, 0);
  if (num_ranks > available_threads()) ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  if (::geteuid() != 0) return;
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
}

// Open MPI gives the ranks a terminal of its own whatever this process writes to.
void tell_whether_a_person_reads() {
  if (::isatty(STDOUT_FILENO) == 0) ::setenv("TERM", "dumb", 1);
}

// mpirun kills the ranks at SIGTERM, but hands SIGUSR1 and SIGUSR2 on to them (signals.h).
std::atomic<pid_t> launcher = 0;
void ask_to_stop(int) { ::kill(launcher, SIGUSR2); }
void ask_to_save(int) { ::kill(launcher, SIGUSR1); }

// In a process group of its own, which a terminal's Ctrl-C does not reach, and so without the terminal's input. Ends
// with `parent`, however that ends.
[[noreturn]] void become_launcher(std::vector<std::string> words, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) std::_Exit(1);  // it has ended before
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  std::_Exit(kNoProgram);
}

int wait_for(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int run_ranks(const TrainConfig& config, int64_t num_ranks, const std::vector<std::string>& command) {
  make_workload(config, {0, num_ranks, static_cast<int>(num_ranks)});
  set_environment(num_ranks);
  tell_whether_a_person_reads();
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(num_ranks),
                                    std::filesystem::read_symlink("/proc/self/exe").string()};
  words.insert(words.end(), command.begin() + 1, command.end());
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw_failed_run("mpirun does not start: {}", std::strerror(errno));
  if (child == 0) become_launcher(std::move(words), parent);
  launcher = child;
  std::signal(SIGTERM, ask_to_stop);
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGUSR1, ask_to_save);
  const int code = wait_for(child);
  if (code == kNoProgram) throw_failed_run("there is no mpirun: install an MPI library such as Open MPI");
  return code;
}

void require_num_ranks(int64_t num_ranks, Comm& comm) {
  if (num_ranks == 0 || num_ranks == comm.size()) return;
  Ranks(&comm).refuse(fmt::format("--ranks is {} and {} ranks were started: start {}, or leave --ranks out", num_ranks,
                                  comm.size(), num_ranks));
}

}  // namespace strata

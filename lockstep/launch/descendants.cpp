#include "lockstep/launch/descendants.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/process_status.h"
#include "lockstep/base/words.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds between_counts{1};

// As it began: what setenv(3) does later does not show.
bool has_in_environment(pid_t pid, const std::string& entry) {
  std::ifstream file(fmt::format("/proc/{}/environ", pid));
  for (std::string one; std::getline(file, one, '\0');) {
    if (one == entry) return true;
  }
  return false;
}

std::vector<pid_t> processes_of(const std::string& job) {
  std::vector<pid_t> found;
  for (const pid_t pid : base::numbers_in("/proc")) {
    if (pid != ::getpid() && has_in_environment(pid, "LOCKSTEP_JOB=" + job)) found.push_back(pid);
  }
  return found;
}

}  // namespace

void become_reaper_of_orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) throw_system("becoming the reaper of orphaned processes");
}

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  for (const pid_t pid : base::numbers_in("/proc")) {
    const base::ProcessStatus status = base::read_status(pid);
    if (status.parent == ::getpid() && status.state != 'Z') found.push_back(pid);
  }
  return found;
}

int kill_descendants(Deadline deadline) {
  std::set<pid_t> killed;
  while (has_children()) {
    for (const pid_t pid : children()) {
      if (::kill(pid, SIGKILL) == 0) killed.insert(pid);
    }
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (deadline.expired()) break;
    // Grandchildren become our children when their parents are gone: no signal and no descriptor tells when.
    if (has_children()) std::this_thread::sleep_for(between_counts);
  }
  return static_cast<int>(killed.size());
}

void end_job(const std::string& job, Deadline deadline) {
  for (;;) {
    const std::vector<pid_t> left = processes_of(job);
    if (left.empty()) return;
    if (deadline.expired()) {
      throw Error(ErrorCode::system,
                  fmt::format("{} of the ranks before has not ended after SIGKILL (pid {})",
                              base::counted(static_cast<int>(left.size()), "process", "processes"),
                              fmt::join(left, ", ")));
    }
    for (const pid_t pid : left) (void)::kill(pid, SIGKILL);
    std::this_thread::sleep_for(between_counts);  // others' children: nothing tells when they are gone
  }
}

}  // namespace lockstep::launch

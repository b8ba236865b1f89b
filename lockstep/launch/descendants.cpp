#include "lockstep/launch/descendants.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/launch/process_status.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds between_looks{1};

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
  for (const pid_t pid : numbers_in("/proc")) {
    const ProcessStatus status = read_status(pid);
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
    if (has_children()) std::this_thread::sleep_for(between_looks);
  }
  return static_cast<int>(killed.size());
}

}  // namespace lockstep::launch

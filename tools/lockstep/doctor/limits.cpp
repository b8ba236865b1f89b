#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "examine.h"
#include "lockstep/topology/topology.h"

namespace doctor {
namespace {

constexpr rlim_t few_files = 1024;

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? std::string("unlimited") : std::to_string(limit);
}

rlimit limit_of(__rlimit_resource resource) {
  rlimit found{};
  (void)::getrlimit(resource, &found);
  return found;
}

/// Why process_vm_readv of a child is refused; "": it is not.
std::string refusal_to_read() {
  static const char here = 'x';
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return std::strerror(errno);
  const pid_t child = ::fork();
  if (child == 0) {  // until its parent is gone or lets go
    (void)::close(ends[1]);
    char byte = 0;
    (void)!::read(ends[0], &byte, 1);
    ::_exit(0);
  }
  (void)::close(ends[0]);
  std::string refusal = child < 0 ? std::strerror(errno) : "";
  if (child > 0) {
    char seen = 0;
    const iovec local{.iov_base = &seen, .iov_len = 1};
    const iovec remote{.iov_base = const_cast<char*>(&here), .iov_len = 1};
    if (::process_vm_readv(child, &local, 1, &remote, 1, 0) != 1) refusal = std::strerror(errno);
  }
  (void)::close(ends[1]);
  if (child > 0) (void)::waitpid(child, nullptr, 0);
  return refusal;
}

}  // namespace

void examine_limits(Report& report) {
  report.section("Limits", "limits");
  const rlimit files = limit_of(RLIMIT_NOFILE), processes = limit_of(RLIMIT_NPROC),
               locked = limit_of(RLIMIT_MEMLOCK);
  report.fact("open files", limit_text(files.rlim_cur) + " (ulimit -n)", "open_files",
              limit_text(files.rlim_cur));
  report.fact("processes", limit_text(processes.rlim_cur) + " (ulimit -u)", "processes",
              limit_text(processes.rlim_cur));
  report.fact("locked memory", limit_text(locked.rlim_cur) + " bytes (ulimit -l)", "locked_memory",
              limit_text(locked.rlim_cur));
  const std::string refusal = refusal_to_read();
  report.fact("process_vm_readv",
              refusal.empty()
                  ? "allowed"
                  : "refused: " + refusal + " (Lockstep does not need it, MPIs are faster with it)",
              "process_vm_readv", refusal.empty());
  if (files.rlim_cur != RLIM_INFINITY && files.rlim_cur < few_files) {
    report.problem(
        {.weight = 30,
         .what = fmt::format("a process may have {} files open, of which the launcher needs 4 for each rank",
                             files.rlim_cur),
         .remedy = files.rlim_max > files.rlim_cur
                       ? "ulimit -n " + limit_text(files.rlim_max) +
                             (files.rlim_max < few_files ? ", and more from the administrator" : "")
                       : "more from the administrator: it is as many as this user may have"});
  }
}

}  // namespace doctor

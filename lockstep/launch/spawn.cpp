#include "lockstep/launch/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/interpreter.h"
#include "lockstep/launch/limits.h"

namespace lockstep::launch {
namespace {

// Everything that the child needs, made before the fork: after it only system calls are allowed.
struct Prepared {
  explicit Prepared(const SpawnOptions& spawn_options);
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() {
    if (cores != nullptr) CPU_FREE(cores);
  }

  const SpawnOptions& options;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  cpu_set_t* cores = nullptr;
  std::size_t cores_bytes = 0;
  pid_t parent;
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

Prepared::Prepared(const SpawnOptions& spawn_options)
    : options(spawn_options),
      arguments(pointers_to(spawn_options.arguments)),
      environment(pointers_to(spawn_options.environment)),
      parent(::getpid()) {
  if (options.cores.empty()) return;
  const auto size =
      static_cast<std::size_t>(*std::max_element(options.cores.begin(), options.cores.end()) + 1);
  cores = CPU_ALLOC(size);
  cores_bytes = CPU_ALLOC_SIZE(size);
  if (cores == nullptr) throw_system("making room for a set of cores", ENOMEM);
  CPU_ZERO_S(cores_bytes, cores);
  for (const int core : options.cores) CPU_SET_S(static_cast<std::size_t>(core), cores_bytes, cores);
}

void close_all_but_standard_on_exec() {
  if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  const long most = std::min(::sysconf(_SC_OPEN_MAX), 65536L);  // a kernel before 5.11
  for (int fd = 3; fd < most; ++fd) (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// A descriptor that is to become 0, 1 or 2 must not be overwritten before its turn.
bool set_standard_descriptors(const std::array<int, 3>& standard) {
  std::array<int, 3> high{};
  for (std::size_t i = 0; i < 3; ++i) {
    high[i] = ::fcntl(standard[i], F_DUPFD_CLOEXEC, 3);
    if (high[i] < 0) return false;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    if (::dup2(high[i], static_cast<int>(i)) < 0) return false;
  }
  return true;
}

// How far a child came on its way to its program, and errno there. What it writes to its parent.
struct Failure {
  bool executing = false;  // it was ready, and the program is to blame
  int error_number = 0;
};

// All but the program itself. False if something failed, with errno set.
bool make_ready(const Prepared& prepared) {
  const SpawnOptions& options = prepared.options;
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  if (::getppid() != prepared.parent) ::_exit(127);  // it died before the line above
  if (::setpgid(0, 0) != 0) return false;
  // Fails only where the cores were taken from us meanwhile: run anywhere then.
  if (prepared.cores != nullptr) (void)::sched_setaffinity(0, prepared.cores_bytes, prepared.cores);
  if (!set_standard_descriptors(options.standard)) return false;
  close_all_but_standard_on_exec();
  for (const int fd : options.inherited) {
    if (::fcntl(fd, F_SETFD, 0) != 0) return false;
  }
  (void)::signal(SIGPIPE, SIG_DFL);
  (void)::signal(SIGXFSZ, SIG_DFL);
  return ::sigprocmask(SIG_SETMASK, &options.signal_mask, nullptr) == 0;
}

// Returns only if something failed.
Failure become(const Prepared& prepared) {
  if (!make_ready(prepared)) return {.executing = false, .error_number = errno};
  ::execve(prepared.options.path.c_str(), prepared.arguments.data(), prepared.environment.data());
  return {.executing = true, .error_number = errno};
}

}  // namespace

pid_t spawn(const SpawnOptions& options) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_refused("making a pipe");
  UniqueFd word(ends[0]);
  UniqueFd word_end(ends[1]);
  const Prepared prepared(options);
  const pid_t pid = ::fork();
  if (pid < 0) throw_refused("cannot start another process");
  if (pid == 0) {
    const Failure failure = become(prepared);
    (void)!::write(word_end.get(), &failure, sizeof(failure));
    ::_exit(127);
  }
  word_end.reset();
  Failure failure{.executing = false, .error_number = EIO};
  ssize_t got = 0;
  do {
    got = ::read(word.get(), &failure, sizeof(failure));  // ends when exec closes the other end
  } while (got < 0 && errno == EINTR);
  if (got == 0) return pid;
  (void)::waitpid(pid, nullptr, 0);
  if (failure.executing) throw CannotExecute(explain_exec_failure(options.path, failure.error_number));
  throw_refused("cannot start " + options.path, failure.error_number);
}

}  // namespace lockstep::launch

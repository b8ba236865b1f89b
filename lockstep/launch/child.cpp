#include "lockstep/launch/child.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/launch/interpreter.h"
#include "lockstep/launch/limits.h"

namespace lockstep::launch {
namespace {

// Set before the fork, where memory may be allocated whatever the process is.
class CoreSet {
 public:
  explicit CoreSet(const std::vector<int>& cores) {
    if (cores.empty()) return;
    const auto size = static_cast<std::size_t>(*std::max_element(cores.begin(), cores.end()) + 1);
    set_ = CPU_ALLOC(size);
    bytes_ = CPU_ALLOC_SIZE(size);
    if (set_ == nullptr) throw_system("making room for a set of cores", ENOMEM);
    CPU_ZERO_S(bytes_, set_);
    for (const int core : cores) CPU_SET_S(static_cast<std::size_t>(core), bytes_, set_);
  }
  CoreSet(const CoreSet&) = delete;
  CoreSet& operator=(const CoreSet&) = delete;
  ~CoreSet() {
    if (set_ != nullptr) CPU_FREE(set_);
  }

  // Fails only where the cores were taken from us meanwhile: run anywhere then.
  void take() const {
    if (set_ != nullptr) (void)::sched_setaffinity(0, bytes_, set_);
  }

 private:
  cpu_set_t* set_ = nullptr;
  std::size_t bytes_ = 0;
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Of a kernel before 5.11, which knows no ranges.
int end_of_descriptors() { return static_cast<int>(std::min(::sysconf(_SC_OPEN_MAX), 65536L)); }

// False if `inherited` are not open, with errno set.
bool close_all_others_on_exec(const std::vector<int>& inherited) {
  if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
    for (int fd = 3; fd < end_of_descriptors(); ++fd) (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  return std::ranges::all_of(inherited, [](int fd) { return ::fcntl(fd, F_SETFD, 0) == 0; });
}

void close_range_now(int first, int last) {
  if (first > last || ::close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), 0) == 0)
    return;
  for (int fd = first; fd <= std::min(last, end_of_descriptors()); ++fd) (void)::close(fd);
}

void close_all_others(std::vector<int> kept) {
  std::ranges::sort(kept);
  int next = 3;
  for (const int fd : kept) {
    if (fd < next) continue;
    close_range_now(next, fd - 1);
    next = fd + 1;
  }
  close_range_now(next, std::numeric_limits<int>::max());
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

// After a fork, so only system calls are allowed. False if something failed, with errno set.
bool make_ready(const ChildOptions& options, const CoreSet& cores, pid_t parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  if (::setpgid(0, 0) != 0) return false;
  cores.take();
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) return false;
  if (!set_standard_descriptors(options.standard)) return false;
  (void)::signal(SIGPIPE, SIG_DFL);
  (void)::signal(SIGXFSZ, SIG_DFL);
  return ::sigprocmask(SIG_SETMASK, &options.signal_mask, nullptr) == 0;
}

// Forks. The child then becomes what it is to be: `become` returns only if something failed; that it did not,
// is seen from the end of `word_end`, which both exec and close_all_others() close.
template <class Become>
pid_t start(const ChildOptions& options, const std::string& what, Become become) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_refused("making a pipe");
  UniqueFd word(ends[0]);
  UniqueFd word_end(ends[1]);
  const CoreSet cores(options.cores);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw_refused("cannot start another process");
  if (pid == 0) {
    Failure failure;
    if (make_ready(options, cores, parent)) {
      failure = become();
    } else {
      failure = {.executing = false, .error_number = errno};
    }
    (void)!::write(word_end.get(), &failure, sizeof(failure));
    ::_exit(127);
  }
  word_end.reset();
  Failure failure{.executing = false, .error_number = EIO};
  ssize_t got = 0;
  do {
    got = ::read(word.get(), &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  if (got == 0) return pid;
  (void)::waitpid(pid, nullptr, 0);
  if (failure.executing) throw CannotExecute(explain_exec_failure(what, failure.error_number));
  throw_refused("cannot start " + what, failure.error_number);
}

}  // namespace

pid_t start_program(const std::string& path, const std::vector<std::string>& arguments,
                    const ChildOptions& options) {
  const std::vector<std::string> environment = merge_environment(this_environment(), options.environment);
  const std::vector<char*> argument_pointers = pointers_to(arguments);
  const std::vector<char*> environment_pointers = pointers_to(environment);
  return start(options, path, [&]() -> Failure {
    if (!close_all_others_on_exec(options.inherited)) return {.executing = false, .error_number = errno};
    ::execve(path.c_str(), argument_pointers.data(), environment_pointers.data());
    return {.executing = true, .error_number = errno};
  });
}

pid_t start_function(const std::function<int()>& function, const ChildOptions& options) {
  return start(options, "a rank", [&]() -> Failure {
    for (const auto& [name, value] : options.environment) {
      if (::setenv(name.c_str(), value.c_str(), 1) != 0) return {.executing = false, .error_number = errno};
    }
    close_all_others(options.inherited);
    ::_exit(function());
  });
}

}  // namespace lockstep::launch

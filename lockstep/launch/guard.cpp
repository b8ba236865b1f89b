#include "lockstep/launch/guard.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/launch/descendants.h"
#include "lockstep/launch/verdict.h"

namespace lockstep::launch {
namespace {

constexpr std::array passed_on = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
constexpr std::chrono::seconds killing_limit{5};

// Ignored ones stay ignored: that is how nohup and a shell's `&` protect a job.
sigset_t signals_to_take() {
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGCHLD);
  for (const int signal : passed_on) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&taken, signal);
  }
  return taken;
}

// A descriptor made for the job must never be taken for its stdin, stdout or stderr.
void open_missing_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) (void)!::open("/dev/null", O_RDWR);
  }
}

[[noreturn]] void be_the_job(const std::function<int(GuardLine)>& job, GuardLine line) {
  (void)::signal(SIGPIPE, SIG_IGN);
  int code = 1;
  try {
    become_reaper_of_orphans();
    code = job(std::move(line));
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "lockstep run: %s\n", error.what());
  }
  (void)kill_descendants(Deadline::after(killing_limit));
  ::_exit(code);
}

// The exit status of `child`; passes signals on until then.
int watch_over(pid_t child, int orders, const sigset_t& taken) {
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, WNOHANG);  // orphans too, should the job be gone before them
    if (ended == child) return status;
    if (ended > 0) continue;
    const int signal = ::sigwaitinfo(&taken, nullptr);
    if (signal <= 0 || signal == SIGCHLD) continue;
    const char order = static_cast<char>(signal);
    (void)!::write(orders, &order, 1);
    if (signal == SIGTSTP)
      (void)::raise(SIGSTOP);  // the shell waits for us to stop; SIGCONT comes as a signal again
  }
}

}  // namespace

int run_guarded(const std::function<int(GuardLine)>& job) {
  open_missing_standard_descriptors();
  become_reaper_of_orphans();
  (void)::signal(SIGCHLD, SIG_DFL);  // whoever started us may ignore it; children would then vanish unseen
  const sigset_t taken = signals_to_take();
  GuardLine line;
  if (::sigprocmask(SIG_BLOCK, &taken, &line.signal_mask) != 0) throw_system("blocking signals");
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw_system("making a pipe");
  line.orders.reset(ends[0]);
  UniqueFd orders(ends[1]);
  (void)std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw_system("cannot start another process");
  if (child == 0) {
    orders.reset();
    be_the_job(job, std::move(line));
  }
  line.orders.reset();
  (void)::signal(SIGPIPE, SIG_IGN);
  const int status = watch_over(child, orders.get(), taken);
  (void)kill_descendants(Deadline::after(killing_limit));
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  (void)std::fprintf(stderr, "lockstep run: the launcher was %s; all ranks have been ended\n",
                     describe(status).c_str());
  return 128 + WTERMSIG(status);
}

}  // namespace lockstep::launch

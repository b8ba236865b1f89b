#include "lockstep/launch/guard.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/words.h"
#include "lockstep/launch/descendants.h"
#include "lockstep/launch/limits.h"
#include "lockstep/launch/stop_orders.h"
#include "lockstep/launch/verdict.h"

namespace lockstep::launch {
namespace {

constexpr std::array passed_on = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
constexpr std::chrono::milliseconds between_lifeline_looks{500};  // at the lifeline
constexpr std::array writing = {SIGPIPE, SIGXFSZ};                // end a process that writes where it cannot

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
  for (const int signal : writing) (void)::signal(signal, SIG_IGN);
  (void)::prctl(PR_SET_PDEATHSIG, SIGCONT);  // one that is stopped would not notice that the guard is gone
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

// The signal that came, or 0 if none did before the deadline.
int next_signal(const sigset_t& taken, Deadline deadline) {
  if (deadline.is_never()) return std::max(::sigwaitinfo(&taken, nullptr), 0);
  const auto left = std::chrono::ceil<std::chrono::nanoseconds>(deadline.remaining());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
  return std::max(::sigtimedwait(&taken, nullptr, &time), 0);
}

// Stands by the job until it ends: passes signals on, and kills a job that does not end when told to because
// it is stuck.
class Watch {
 public:
  Watch(pid_t job, int orders, const GuardLimits& limits) : job_(job), orders_(orders), limits_(limits) {}

  // The job's exit status.
  int until_the_end(const sigset_t& taken) {
    for (;;) {
      int status = 0;
      const pid_t ended = ::waitpid(-1, &status, WNOHANG);  // orphans too, should the job be gone before them
      if (ended == job_) return status;
      if (ended > 0) continue;
      if (limit_.expired()) kill_job();
      look_at_lifeline();
      const int signal = next_signal(
          taken, has_lifeline() ? limit_.earlier_of(Deadline::after(between_lifeline_looks)) : limit_);
      if (signal != 0 && signal != SIGCHLD) pass_on(signal);
    }
  }

  // How it ended, for the user, and the exit code; for one that was killed.
  std::pair<std::string, int> explain(int status) const {
    if (!killed_) return {"was " + describe(status), 128 + WTERMSIG(status)};
    const auto granted = stop_.hurried() ? limits_.hurried : limits_.stopped;
    return {fmt::format("did not end within {} of {} and was killed", base::exact_duration(granted),
                        base::signal_name(stop_.first())),
            128 + stop_.first()};
  }

 private:
  void pass_on(int signal) {
    if (stop_.take(signal)) {
      limit_ = limit_.earlier_of(Deadline::after(stop_.hurried() ? limits_.hurried : limits_.stopped));
      (void)::kill(job_, SIGCONT);  // one that is stopped would not notice
    }
    const char order = static_cast<char>(signal);
    (void)!::write(orders_, &order, 1);
    if (signal == SIGTSTP)
      (void)::raise(SIGSTOP);  // the shell waits for us to stop; SIGCONT comes as a signal again
  }

  bool has_lifeline() const { return limits_.lifeline >= 0 && !is_cut_off_; }

  // The job looks at it, too, unless it is stopped or stuck.
  void look_at_lifeline() {
    if (!has_lifeline()) return;
    pollfd polled{limits_.lifeline, POLLRDHUP, 0};
    if (::poll(&polled, 1, 0) <= 0 || (polled.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) return;
    is_cut_off_ = true;
    limit_ = limit_.earlier_of(Deadline::after(limits_.stopped));
    (void)::kill(job_, SIGCONT);
  }

  void kill_job() {
    killed_ = ::kill(job_, SIGKILL) == 0;
    limit_ = Deadline::never();
  }

  pid_t job_;
  int orders_;
  GuardLimits limits_;
  StopOrders stop_;
  Deadline limit_ = Deadline::never();
  bool killed_ = false;
  bool is_cut_off_ = false;
};

}  // namespace

bool GuardLine::take_orders(const std::function<void(int signal)>& take) const {
  std::array<unsigned char, 64> signals;
  const ssize_t got = ::read(orders.get(), signals.data(), signals.size());
  for (ssize_t i = 0; i < got; ++i) take(signals[static_cast<std::size_t>(i)]);
  return got != 0;
}

int run_guarded(const std::function<int(GuardLine)>& job, const GuardLimits& limits) {
  open_missing_standard_descriptors();
  become_reaper_of_orphans();
  (void)::signal(SIGCHLD, SIG_DFL);  // whoever started us may ignore it; children would then vanish unseen
  const sigset_t taken = signals_to_take();
  GuardLine line;
  if (::sigprocmask(SIG_BLOCK, &taken, &line.signal_mask) != 0) throw_system("blocking signals");
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw_refused("making a pipe");
  line.orders.reset(ends[0]);
  UniqueFd orders(ends[1]);
  (void)std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw_refused("cannot start another process");
  if (child == 0) {
    orders.reset();
    be_the_job(job, std::move(line));
  }
  line.orders.reset();
  (void)::signal(SIGPIPE, SIG_IGN);
  Watch watch(child, orders.get(), limits);
  const int status = watch.until_the_end(taken);
  (void)kill_descendants(Deadline::after(killing_limit));
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  const auto [how, exit_code] = watch.explain(status);
  (void)std::fprintf(stderr, "lockstep run: %s %s; all ranks have been ended\n", limits.job, how.c_str());
  return exit_code;
}

}  // namespace lockstep::launch

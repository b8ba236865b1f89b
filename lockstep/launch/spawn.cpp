#include "lockstep/launch/spawn.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/process_status.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/group/init.h"
#include "lockstep/group/launchers.h"
#include "lockstep/launch/limits.h"
#include "lockstep/launch/run.h"
#include "lockstep/view/report/leave_report.h"

namespace lockstep {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr int threads_of_runtime = 1;
#else
constexpr int threads_of_runtime = 0;
#endif

std::vector<int> open_descriptors() {
  std::vector<int> descriptors = base::numbers_in("/proc/self/fd");
  std::erase_if(descriptors, [](int fd) { return ::fcntl(fd, F_GETFD) < 0; });  // the folder's own
  return descriptors;
}

void require_possible(int ranks) {
  if (ranks < 1 || ranks > launch::most_ranks) {
    throw_invalid_argument(
        fmt::format("spawn: {} is not a number of ranks from 1 to {}", ranks, launch::most_ranks));
  }
  const std::string remedy = std::string("; ") + ::program_invocation_short_name +
                             " starts its ranks itself, so start it without a launcher, or leave spawn() "
                             "out and let the launcher start all ranks";
  if (env::text("LOCKSTEP_JOB") || env::text("RANK")) {
    throw_invalid_argument("spawn: this process is already rank " + env::text("RANK").value_or("?") +
                           " of a job, and ranks do not start ranks" + remedy);
  }
  if (const auto launched = find_launched_rank(); launched && launched->size > 1) {
    throw_invalid_argument("spawn: this process is one of several started by " + launched->launcher +
                           ", each of which would start ranks" + remedy);
  }
  if (worlds() > 0) {
    throw_invalid_argument(
        "spawn: lockstep::init() was called in this process before, and ranks would be copies of what it "
        "made; call spawn() first, and init() in the function that it calls");
  }
  const auto threads = static_cast<int>(base::numbers_in("/proc/self/task").size()) - threads_of_runtime;
  if (threads < 1)
    throw Error(ErrorCode::system, "spawn: /proc cannot be read, which tells what would be copied");
  if (threads > 1) {
    throw_invalid_argument(
        fmt::format("spawn: this process has {} threads, and each rank would be a copy with only one of "
                    "them; call spawn() before anything starts threads, or use `lockstep run`",
                    threads));
  }
}

/// How the job ended, told by its process to the one that called spawn().
struct Report {
  bool is_told;
  int exit_code;
  int rank;
  std::array<char, 16384> text;

  void tell(const launch::Verdict& verdict) {
    exit_code = verdict.exit_code;
    rank = verdict.rank;
    text[verdict.summary.copy(text.data(), text.size() - 1)] = '\0';
    is_told = true;
  }
};

struct Unmap {
  void operator()(Report* report) const { ::munmap(report, sizeof(Report)); }
};

std::unique_ptr<Report, Unmap> shared_report() {
  void* memory = ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_system("spawn: memory for the ranks' report");
  return std::unique_ptr<Report, Unmap>(new (memory) Report{});
}

/// What a process that is copied has not written yet would be written by each copy.
void flush_all() {
  std::cout.flush();
  std::clog.flush();
  (void)std::fflush(nullptr);
}

/// Signals that the launcher handles otherwise, as its caller had them.
class Dispositions {
 public:
  Dispositions() {
    for (std::size_t i = 0; i < signals.size(); ++i) (void)::sigaction(signals[i], nullptr, &actions_[i]);
  }
  void restore() const {
    for (std::size_t i = 0; i < signals.size(); ++i) (void)::sigaction(signals[i], &actions_[i], nullptr);
  }

 private:
  static constexpr std::array signals = {SIGCHLD, SIGPIPE, SIGXFSZ};
  std::array<struct sigaction, signals.size()> actions_{};
};

/// An OpenMP runtime has read OMP_NUM_THREADS before this process was copied.
void tell_openmp() {
  using SetThreads = void (*)(int);
  const auto set_threads = reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  const auto threads = env::text("OMP_NUM_THREADS");
  if (set_threads == nullptr || !threads) return;
  int number = 0;  // of the outermost level, where there is a list
  std::from_chars(threads->data(), threads->data() + threads->size(), number);
  if (number > 0) set_threads(number);
}

/// libtorch's errors end in a stack trace.
std::string without_trace(const std::string& text) {
  return text.substr(0, std::min(text.find("\nException raised from "), text.find("\nframe #0: ")));
}

int call(const std::function<void(int)>& function, int rank) {
  int exit_code = 1;
  tell_openmp();
  try {
    function(rank);
    exit_code = 0;
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "%s\n", without_trace(error.what()).c_str());
  } catch (...) {
    (void)std::fputs("an exception that is no std::exception\n", stderr);
  }
  flush_all();
  return exit_code;
}

[[noreturn]] void launch_ranks(const launch::RunOptions& options, pid_t parent) {
  // Without whoever waits for it the job has no purpose.
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != parent) ::_exit(1);
  ::_exit(launch::run(options));
}

[[noreturn]] void throw_report(const Report& report, int status) {
  if (!report.is_told) {
    throw Error(ErrorCode::system, "spawn: the process that starts the ranks ended with " +
                                       launch::describe(status) + "; all ranks have been ended");
  }
  std::string text = std::string("spawn: ") + report.text.data();
  while (text.ends_with('\n')) text.pop_back();
  if (report.rank >= 0) throw Error(ErrorCode::peer_lost, text, report.rank);
  throw Error(report.exit_code > 128 ? ErrorCode::aborted : ErrorCode::system, text);
}

}  // namespace

/// The process that looks after the ranks, as its parent sees it.
class SpawnedRanks::Impl {
 public:
  Impl(std::unique_ptr<Report, Unmap> report, pid_t pid, UniqueFd end)
      : report_(std::move(report)), pid_(pid), end_(std::move(end)) {}
  ~Impl() {
    if (status_) return;
    (void)::kill(pid_, SIGTERM);
    (void)wait(Deadline::never());
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// False: the deadline has passed.
  bool wait(Deadline deadline) {
    pollfd end{.fd = end_.get(), .events = POLLIN, .revents = 0};  // nobody writes: it ends with the process
    while (!status_) {
      const int ready = ::poll(&end, 1, deadline.poll_milliseconds(std::chrono::hours(1)));
      if (ready < 0 && errno != EINTR) throw_system("spawn: waiting for the ranks");
      if (ready > 0) break;
      if (deadline.expired()) return false;
    }
    int status = 0;
    while (!status_) {
      if (::waitpid(pid_, &status, 0) == pid_) {
        status_ = status;
      } else if (errno != EINTR) {
        throw_system("spawn: waiting for the ranks");
      }
    }
    return true;
  }
  void report() const {
    if (*status_ != 0 || report_->is_told) throw_report(*report_, *status_);
  }

 private:
  std::unique_ptr<Report, Unmap> report_;
  pid_t pid_;
  UniqueFd end_;
  std::optional<int> status_;  // its exit status
};

SpawnedRanks::SpawnedRanks(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SpawnedRanks::SpawnedRanks(SpawnedRanks&&) noexcept = default;
SpawnedRanks& SpawnedRanks::operator=(SpawnedRanks&&) noexcept = default;
SpawnedRanks::~SpawnedRanks() = default;

void SpawnedRanks::join() {
  (void)impl_->wait(Deadline::never());
  impl_->report();
}

bool SpawnedRanks::join_for(std::chrono::nanoseconds time) {
  if (!impl_->wait(Deadline::after(time))) return false;
  impl_->report();
  return true;
}

SpawnedRanks spawn(const SpawnOptions& options, const std::function<void(int rank)>& function) {
  require_possible(options.ranks);
  auto report = shared_report();
  const Dispositions dispositions;
  launch::RunOptions run_options;
  run_options.ranks = options.ranks;
  run_options.function = [&](int rank) {
    dispositions.restore();
    return call(function, rank);
  };
  run_options.inherited = open_descriptors();
  run_options.on_failure = [&](const launch::Verdict& verdict) { report->tell(verdict); };
  run_options.pin = options.pin;
  run_options.output.prefix = options.prefix;
  run_options.record_dir = launch::record_dir(options.record_dir);
  run_options.timeline = launch::timeline_file();
  run_options.timeline_names = view::timeline_names_from_environment();
  run_options.report = view::report_folder(std::nullopt);
  run_options.profile = view::ProfileOptions::from_environment(std::nullopt, !run_options.report.empty());
  run_options.stragglers = launch::StragglerLimits::from_environment();
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) launch::throw_refused("spawn: making a pipe");
  UniqueFd end(ends[0]), held(ends[1]);
  flush_all();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) launch::throw_refused("spawn: cannot start another process");
  if (pid == 0) launch_ranks(run_options, parent);
  held.reset();
  SpawnedRanks ranks(std::make_unique<SpawnedRanks::Impl>(std::move(report), pid, std::move(end)));
  if (options.join) ranks.join();
  return ranks;
}

}  // namespace lockstep

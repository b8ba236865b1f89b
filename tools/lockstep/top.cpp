#include "top.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>

#include "command_line.h"
#include "live_page.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system_file.h"
#include "lockstep/base/unique_fd.h"
#include "lockstep/base/words.h"
#include "top_table.h"

namespace {

using lockstep::ControlPage;
using lockstep::Deadline;
using lockstep::UniqueFd;
using lockstep::launch::RunningJob;
using lockstep::view::LiveHost;
using lockstep::view::LiveReader;

constexpr const char* top_after_help =
    R"(A table of the ranks of this host, again and again until q, Ctrl-C or the end of the job; where stdout is no terminal,
one table of one interval. The job does not notice.

  bytes/s   of calls, or of gradients where ranks read these from each other without a call
  steps     of training so far; step: how long one took, and how much of it was exposed communication
  blocked   share of the time in calls, in waits for them, and exposed in steps
  last      how often the rank was the last to come to a collective, and late: the median of how long after the one before it
  memory    resident, now

The exit code is 0, 1 where there is no job, and 2 for wrong usage.

  lockstep top
  lockstep top --pid 4242 --once --json
  lockstep top --page
)";

struct TopFlags {
  std::string pid;
  std::string job;
  std::string interval;
  std::optional<int> page_port;
  bool once = false;
  bool json = false;
};

void describe(CLI::App& app, TopFlags& flags) {
  command_line::set_usage(
      app,
      "Usage: lockstep top [--pid PID | --job NAME] [--interval SECONDS] [--once] [--json]\n"
      "       lockstep top [--pid PID | --job NAME] --page [PORT]\n");
  app.footer(top_after_help);
  auto* pid =
      app.add_option("--pid", flags.pid, "A job's `lockstep run`, or one of its ranks [your only job here]");
  app.add_option("--job", flags.job, "Its name, or the beginning of that")->excludes(pid);
  app.add_option("--interval", flags.interval, "From one table to the next [1s]");
  app.add_flag("--once", flags.once, "One table of one interval");
  app.add_flag("--json", flags.json, "The same as a line of JSON");
  app.add_option("--page", flags.page_port,
                 "Serve the report of the job so far to a browser on this host, at an address with a token "
                 "in it, which is "
                 "said, until the job or Ctrl-C [a free port]")
      ->expected(0, 1)
      ->default_str("0")
      ->check(CLI::Range(0, 65535))
      ->excludes("--once")
      ->excludes("--json");
}

std::chrono::nanoseconds interval_of(const std::string& text) {
  if (text.empty()) return std::chrono::seconds(1);
  const auto interval = lockstep::env::parse_duration("--interval", text);
  if (interval < std::chrono::milliseconds(50) || interval > std::chrono::hours(1))
    lockstep::throw_invalid_argument("--interval " + text + " is not from 50ms to 1h");
  return interval;
}

struct NoJob : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string command_of(pid_t pid) {
  std::string words = lockstep::base::system_text(fmt::format("/proc/{}/cmdline", pid), 200);
  std::replace(words.begin(), words.end(), '\0', ' ');
  return printable(words);
}

RunningJob find_job(const TopFlags& flags) {
  if (!flags.pid.empty()) {
    const auto most = std::numeric_limits<pid_t>::max();
    return lockstep::launch::running_job_of(
        static_cast<pid_t>(lockstep::env::parse_integer("--pid", flags.pid, 1, most)));
  }
  std::vector<RunningJob> jobs = lockstep::launch::running_jobs();
  std::erase_if(jobs, [&](const RunningJob& job) { return !job.name.starts_with(flags.job); });
  if (jobs.empty())
    throw NoJob(flags.job.empty() ? "no job of yours runs on this host"
                                  : "no job of yours on this host is called " + printable(flags.job));
  if (jobs.size() == 1) return jobs.front();
  std::string text = "there are several jobs; pass --pid or --job:";
  for (const RunningJob& job : jobs)
    text +=
        fmt::format("\n  --pid {:<8} --job {:<16}  {}", job.pid, printable(job.name), command_of(job.pid));
  lockstep::throw_invalid_argument(text);
}

/// A job that is looked at: where its ranks start again, at those of the next attempt.
class Watched {
 public:
  explicit Watched(RunningJob job)
      : pages_(std::move(job)), end_(static_cast<int>(::syscall(SYS_pidfd_open, pages_.job().holder, 0))) {
    (void)look();
  }

  /// Ready when the job has ended.
  int end_fd() const { return end_.get(); }
  bool has_ended() const {
    pollfd end{end_.get(), POLLIN, 0};
    return !end_ || ::poll(&end, 1, 0) > 0;
  }
  /// From the look before to now; nullopt: there is nothing to compare, as where ranks have just started again.
  std::optional<TopView> look() {
    reopen();
    if (!reader_) return std::nullopt;
    LiveHost now = reader_->look();
    lockstep::launch::note_states(now.record);
    const auto before = std::exchange(last_, now);
    return before ? std::optional(TopView::of(pages_.job(), *before, now)) : std::nullopt;
  }

 private:
  // Of a job that has ended the last page stays.
  void reopen() {
    auto page = pages_.next();
    if (!page) return;
    last_.reset();
    reader_.reset();
    page_ = std::move(page);
    reader_.emplace(*page_, std::vector<int>(), 0, LiveReader::From::now);
  }

  lockstep::launch::JobPages pages_;
  UniqueFd end_;
  std::optional<ControlPage> page_;
  std::optional<LiveReader> reader_;
  std::optional<LiveHost> last_;
};

/// SIGINT and the like as a descriptor, so that the terminal is left as it was found.
UniqueFd watch_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}) sigaddset(&set, signal);
  (void)::sigprocmask(SIG_BLOCK, &set, nullptr);
  return UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

/// The whole terminal for a table, and keys as they are pressed, while it lives.
class Screen {
 public:
  Screen() {
    is_read_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (is_read_) {
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      (void)::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    write("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    write("\x1b[?25h\x1b[?1049l");
    if (is_read_) (void)::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// `otherwise`: what is there where there is no view.
  void show(const std::optional<TopView>& view, const std::string& otherwise) const {
    winsize size{};
    (void)::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    const std::size_t lines = size.ws_row > 3 ? size.ws_row - 2U : 0;
    const std::string table = view ? table_of(*view, size.ws_col, lines) : otherwise + "\n";
    std::string text = "\x1b[H";
    for (const char c : table) text += c == '\n' ? std::string("\x1b[K\r\n") : std::string(1, c);
    write(text + "\x1b[K\r\nq: end\x1b[J");
  }
  bool is_read() const { return is_read_; }

 private:
  static void write(const std::string& text) {
    (void)std::fputs(text.c_str(), stdout);
    (void)std::fflush(stdout);
  }

  bool is_read_ = false;
  termios before_{};
};

enum class Event { time, quit, ended, redraw };

Event wait_for(const Watched& job, int signals, bool reads_keys, Deadline until) {
  std::array<pollfd, 3> polled = {pollfd{job.end_fd(), POLLIN, 0}, pollfd{signals, POLLIN, 0},
                                  pollfd{reads_keys ? STDIN_FILENO : -1, POLLIN, 0}};
  if (::poll(polled.data(), polled.size(), until.poll_milliseconds(std::chrono::hours(1))) <= 0)
    return Event::time;
  if (polled[1].revents != 0) {
    signalfd_siginfo signal{};
    (void)!::read(signals, &signal, sizeof(signal));
    return signal.ssi_signo == SIGWINCH ? Event::redraw : Event::quit;
  }
  if (polled[2].revents != 0) {
    char key = 'q';  // where stdin has ended
    const bool is_end = ::read(STDIN_FILENO, &key, 1) <= 0;
    return is_end || key == 'q' || key == 'Q' ? Event::quit : Event::redraw;
  }
  return Event::ended;
}

constexpr const char* has_ended = "the job has ended\n";

/// Until there is something to compare.
int show_once(Watched& job, const TopFlags& flags, std::chrono::nanoseconds interval, int signals) {
  for (;;) {
    Event event = Event::redraw;
    for (const auto until = Deadline::after(interval); event == Event::redraw;)
      event = wait_for(job, signals, false, until);
    if (event == Event::quit) return 0;
    const auto view = job.look();
    const std::string end = job.has_ended() && !flags.json ? has_ended : "";
    if (view) return command_line::print((flags.json ? json_of(*view) : table_of(*view)) + end);
    if (job.has_ended()) return command_line::print(end);
  }
}

int show_again_and_again(Watched& job, std::chrono::nanoseconds interval, int signals) {
  std::optional<TopView> view;
  bool is_over = false;
  std::string otherwise =
      "measuring for " + lockstep::base::duration(static_cast<std::uint64_t>(interval.count()));
  {
    const Screen screen;
    Deadline next = Deadline::after(interval);
    for (Event event = Event::time; event != Event::quit && !is_over;) {
      screen.show(view, otherwise);
      event = wait_for(job, signals, screen.is_read(), next);
      is_over = job.has_ended();
      if (event != Event::time && !is_over) continue;
      next = Deadline::after(interval);
      if (auto now = job.look()) view = std::move(now);
      otherwise = "no ranks at the moment";
    }
  }
  const std::string table = view ? table_of(*view) : "";
  return command_line::print(is_over ? table + has_ended : "");
}

/// To a browser, until the job's end.
int serve_page(const Watched& watched, const RunningJob& job, int port, int signals) {
  LivePage page(job, static_cast<std::uint16_t>(port));
  std::printf("job %s so far: %s\n", printable(job.name).c_str(), page.address().c_str());
  (void)std::fflush(stdout);
  bool is_over = false;
  while (!is_over && !watched.has_ended()) {
    page.look();
    lockstep::launch::PollSet poll;
    page.watch(poll);
    poll.watch(watched.end_fd(), POLLIN, [] {});
    poll.watch(signals, POLLIN, [&] {
      signalfd_siginfo signal{};
      (void)!::read(signals, &signal, sizeof(signal));
      is_over = signal.ssi_signo != SIGWINCH;
    });
    poll.wait(page.wake_at());
  }
  return command_line::print(is_over ? "" : has_ended);
}

}  // namespace

int top_command(const std::vector<std::string>& arguments) {
  TopFlags flags;
  CLI::App app("Shows what the ranks of a running job do.");
  describe(app, flags);
  try {
    command_line::parse(app, arguments);
    const auto interval = interval_of(flags.interval);
    const UniqueFd signals = watch_signals();
    const RunningJob found = find_job(flags);
    Watched job(found);
    if (flags.page_port) return serve_page(job, found, *flags.page_port, signals.get());
    const bool is_once = flags.once || flags.json || ::isatty(STDOUT_FILENO) == 0;
    return is_once ? show_once(job, flags, interval, signals.get())
                   : show_again_and_again(job, interval, signals.get());
  } catch (const NoJob& error) {
    (void)std::fprintf(stderr, "lockstep top: %s\n", error.what());
    return 1;
  } catch (...) {
    return command_line::answer(app, "top");
  }
}

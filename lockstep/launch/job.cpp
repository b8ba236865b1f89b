#include "lockstep/launch/job.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/words.h"
#include "lockstep/launch/child.h"
#include "lockstep/launch/descendants.h"
#include "lockstep/launch/limits.h"
#include "lockstep/launch/process_status.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds last_words{200};  // the summary gets so much time even after a second Ctrl-C

UniqueFd watch_children() {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  UniqueFd fd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) throw_refused("watching for the end of ranks");
  return fd;
}

UniqueFd open_nothing() {
  UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!fd) throw_refused("opening /dev/null");
  return fd;
}

std::string random_name() {
  static constexpr char digits[] = "0123456789abcdef";
  const Secret source = Secret::random();
  std::string name;
  for (const std::byte byte : source.bytes().first(8)) {
    name += digits[std::to_integer<unsigned>(byte) >> 4U];
    name += digits[std::to_integer<unsigned>(byte) & 15U];
  }
  return name;
}

std::string in_lines_of_ours(const std::string& text) {
  std::string lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin) + 1;
    lines += "lockstep run: " + text.substr(begin, end - begin);
    begin = end;
  }
  return lines;
}

Listener listen_for_store(const std::string& job) {
  return Listener::bind(Endpoint::unix_abstract(fmt::format("lockstep-{}-{}-0", ::getuid(), job)));
}

}  // namespace

Job::Job(JobPlan plan, GuardLine guard)
    : plan_(std::move(plan)),
      guard_(std::move(guard)),
      child_events_(watch_children()),
      secret_(Secret::random()),
      secret_fd_(secret_.to_memfd()),
      page_(ControlPage::create(plan_.options.ranks)),
      name_(random_name()),
      store_listener_(listen_for_store(name_)),
      facts_(make_facts()),
      flight_(plan_.options.record_dir, name_),
      output_(plan_.options.ranks, plan_.options.prefix),
      ranks_(static_cast<std::size_t>(plan_.options.ranks)),
      stragglers_(plan_.options.stragglers) {}

JobFacts Job::make_facts() const {
  const auto wished = static_cast<std::uint16_t>(plan_.options.master_port);
  return {.ranks = plan_.options.ranks,
          .job = name_,
          .store = store_listener_.endpoint().to_string(),
          .master_port = Listener::bind(Endpoint::tcp("127.0.0.1", wished)).endpoint().port,
          .control_fd = page_.fd(),
          .secret_fd = secret_fd_.get(),
          .cores = plan_.placement.cores,
          .threads = plan_.placement.threads};
}

int Job::run() {
  for (int rank = 0; rank < facts_.ranks; ++rank) start_rank(rank);
  store_.emplace(std::move(store_listener_),
                 StoreServerOptions{.trust = Trust{secret_, false}, .job = name_});
  while (any_running() && !guard_gone_) {
    wait_for_events(next_step());
    reap();
    escalate();
    look_at_stragglers();
  }
  wait_for_leftovers();
  const int left = kill_descendants(Deadline::after(killing_limit));
  output_.finish();
  if (left > 0 && !told_ && stop_.first() == 0) {
    output_.say(fmt::format("lockstep run: ended {} that the ranks had left behind\n",
                            base::counted(left, "process", "processes")));
  }
  for (Ending& ending : endings_) ending.last_lines = output_.last_lines(ending.rank);
  const Verdict verdict = given_up_
                              ? judge_stopped(endings_, given_up_->who.rank, given_up_->since)
                              : judge(endings_, page_.first_cause().get(), failed_first_ ? 0 : stop_.first());
  if (plan_.options.on_failure && verdict.exit_code != 0) {
    plan_.options.on_failure(verdict);
  } else if (!verdict.summary.empty()) {
    output_.say("lockstep run: " + verdict.summary);
  }
  write_remaining_output();
  leave_flight_record(verdict);
  return verdict.exit_code == 0 && output_.lost() ? 1 : verdict.exit_code;
}

void Job::start_rank(int rank) {
  auto ends = output_.open(rank);
  UniqueFd input = rank == 0 ? terminal_.open(STDIN_FILENO) : open_nothing();
  const auto& pinned = plan_.placement.pinned;
  ChildOptions child{.environment = rank_variables(rank, facts_),
                     .standard = {input ? input.get() : STDIN_FILENO, ends.out.get(), ends.err.get()},
                     .inherited = {facts_.control_fd, facts_.secret_fd},
                     .cores = pinned.empty() ? std::vector<int>() : pinned[static_cast<std::size_t>(rank)],
                     .signal_mask = guard_.signal_mask};
  const RunOptions& options = plan_.options;
  pid_t pid = 0;
  if (options.function) {
    child.inherited.insert(child.inherited.end(), options.inherited.begin(), options.inherited.end());
    pid = start_function([&] { return options.function(rank); }, child);
  } else {
    pid = start_program(plan_.program, options.command, child);
  }
  ranks_[static_cast<std::size_t>(rank)] = {pid, true};
}

void Job::wait_for_events(Deadline deadline) {
  PollSet poll;
  poll.watch(guard_.orders.get(), POLLIN, [this] { take_orders(); });
  poll.watch(child_events_.get(), POLLIN, [this] {
    signalfd_siginfo ignored{};
    (void)!::read(child_events_.get(), &ignored, sizeof(ignored));
  });
  output_.watch(poll);
  if (any_running()) terminal_.watch(poll);
  poll.wait(deadline);
}

void Job::take_orders() {
  std::array<char, 64> orders;
  const ssize_t got = ::read(guard_.orders.get(), orders.data(), orders.size());
  for (ssize_t i = 0; i < got; ++i) take_order(orders[static_cast<std::size_t>(i)]);
  if (got == 0) {
    guard_gone_ = true;
    signal_ranks(SIGKILL, true);
  }
}

void Job::take_order(int signal) {
  if (stop_.take(signal))
    kill_at_ =
        kill_at_.earlier_of(Deadline::after(stop_.hurried() ? milliseconds(0) : plan_.options.stop_grace));
  if (signal == SIGTSTP || signal == SIGCONT) {
    suspended_ = signal == SIGTSTP;
    stragglers_.forget();
  }
  signal_ranks(signal, signal != SIGUSR1 && signal != SIGUSR2);
}

// A signal that a terminal would send to a whole pipeline goes to all of a rank's family.
void Job::signal_ranks(int signal, bool whole_family) {
  for (const Rank& rank : ranks_) {
    if (rank.running) (void)::kill(whole_family ? -rank.pid : rank.pid, signal);
  }
}

void Job::reap() {
  int status = 0;
  ++moment_;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto found =
        std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& r) { return r.pid == pid; });
    if (found == ranks_.end() || !found->running) continue;  // an orphan of a rank
    found->running = false;
    endings_.push_back({.rank = static_cast<int>(found - ranks_.begin()),
                        .pid = pid,
                        .wait_status = status,
                        .moment = moment_,
                        .by_launcher = told_});
  }
  if (!told_) note_failure();
}

void Job::note_failure() {
  const Ending* failure = earliest_failure(endings_);
  if (failure == nullptr || failed_) return;
  failed_ = true;
  failed_first_ = stop_.first() == 0;
  flight_.note_failure(page_, pids());
  const bool needed = page_.status(failure->rank).said_goodbye.load() == 0;
  if (needed) {
    (void)page_.first_cause().set(
        {.code = ErrorCode::peer_lost, .culprit = failure->rank, .text = describe(*failure)});
    page_.doorbell().ring();  // survivors that wait hear of it now
  }
  if (stop_.first() != 0) return;  // the rest has been told to end already
  terminate_at_ = Deadline::after(plan_.options.report_grace);
  kill_at_ = kill_at_.earlier_of(Deadline::after(plan_.options.report_grace + plan_.options.terminate_grace));
}

void Job::escalate() {
  if (terminate_at_.expired()) {
    told_ = true;
    terminate_at_ = Deadline::never();
    signal_ranks(SIGTERM, true);
    signal_ranks(SIGCONT, true);  // a stopped rank would not notice
  }
  if (kill_at_.expired()) {
    told_ = true;
    kill_at_ = Deadline::never();
    signal_ranks(SIGKILL, true);
  }
}

// Not where something has failed, or was told to end: then the ranks that are left are being ended anyway.
void Job::look_at_stragglers() {
  if (endings_.empty() || failed_ || told_ || suspended_ || stop_.first() != 0) {
    look_at_ = Deadline::never();
    return;
  }
  if (!look_at_.is_never() && !look_at_.expired()) return;
  look_at_ = Deadline::after(plan_.options.stragglers.between_looks);
  std::vector<int> ended;
  for (const Ending& ending : endings_) ended.push_back(ending.rank);
  std::sort(ended.begin(), ended.end());
  const std::string text = stragglers_.look(ended, stragglers());
  if (!text.empty()) output_.say(in_lines_of_ours(text));
  if (const auto given_up = stragglers_.given_up()) give_up(*given_up);
}

// A rank may be a shell around the program that joined the job.
std::vector<Straggler> Job::stragglers() const {
  std::vector<Straggler> left;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].running) continue;
    const auto is_stopped = [](pid_t pid) { return read_status(pid).state == 'T'; };
    const pid_t started = ranks_[rank].pid, joined = page_.status(static_cast<int>(rank)).pid.load();
    const bool is_family = joined > 0 && ::getpgid(joined) == started;
    const bool is_inside = !is_stopped(started) && is_family && is_stopped(joined);
    left.push_back({.rank = static_cast<int>(rank),
                    .pid = is_inside ? joined : started,
                    .is_stopped = is_inside || is_stopped(started)});
  }
  return left;
}

void Job::give_up(const Stragglers::GivenUp& given_up) {
  given_up_ = given_up;
  flight_.note_failure(page_, pids());
  (void)page_.first_cause().set({.code = ErrorCode::timeout,
                                 .culprit = given_up.who.rank,
                                 .text = "rank " + std::to_string(given_up.who.rank) + " was stopped"});
  terminate_at_ = Deadline::after(milliseconds(0));
  kill_at_ = kill_at_.earlier_of(Deadline::after(plan_.options.terminate_grace));
  escalate();
}

std::vector<pid_t> Job::pids() const {
  std::vector<pid_t> all;
  for (const Rank& rank : ranks_) all.push_back(rank.pid);
  return all;
}

Deadline Job::next_step() const { return terminate_at_.earlier_of(kill_at_).earlier_of(look_at_); }

bool Job::any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
}

void Job::wait_for_leftovers() {
  const Deadline deadline = Deadline::after(told_ ? milliseconds(0) : plan_.options.leftover_grace);
  while (!guard_gone_ && !stop_.hurried() && !deadline.expired() && has_children()) {
    wait_for_events(deadline);
    reap();
  }
}

// Whoever reads our output may be slow, which is waited for, or stuck, which must not keep us from ending
// when told to. What can be written without waiting is written in any case: the summary, most of all.
void Job::write_remaining_output() {
  const Deadline patience =
      stop_.first() == 0 ? Deadline::never() : Deadline::after(plan_.options.stop_grace);
  const int told_before = stop_.first();
  while (!output_.flushed() && !guard_gone_ && !stop_.hurried() && !patience.expired() &&
         stop_.first() == told_before) {
    wait_for_events(patience);
  }
  const Deadline limit = Deadline::after(last_words);
  while (!output_.flushed() && !guard_gone_ && !limit.expired()) wait_for_events(limit);
}

// After the summary, which must not wait for a slow disk.
void Job::leave_flight_record(const Verdict& verdict) {
  const bool stopped_by_user = !failed_first_ && stop_.first() != 0;
  if (verdict.exit_code == 0 || stopped_by_user || stop_.hurried() || guard_gone_) return;
  output_.say(flight_.write(page_, pids(), endings_));
  write_remaining_output();
}

}  // namespace lockstep::launch

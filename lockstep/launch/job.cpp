#include "lockstep/launch/job.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "lockstep/base/words.h"
#include "lockstep/launch/flight_recorder.h"
#include "lockstep/view/explain/explain.h"
#include "lockstep/view/profile/run_profile.h"
#include "lockstep/view/report/leave_report.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds time_to_hear{2000};        // how it came out, for launchers of other hosts
constexpr milliseconds between_live_looks{1000};  // at what the ranks do, for whoever asks for their numbers
constexpr milliseconds time_to_answer{300};       // for other hosts, how it is now
constexpr milliseconds last_words{200};           // the summary gets so much time even after a second Ctrl-C

std::string in_lines_of_ours(const std::string& text) {
  std::string lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin) + 1;
    lines += "lockstep run: " + text.substr(begin, end - begin);
    begin = end;
  }
  return lines;
}

}  // namespace

Job::Job(const RunOptions& options, Attempt attempt, GuardLine& guard, RankOutput& output,
         TerminalInput& terminal, Hosts hosts)
    : options_(options),
      attempt_(std::move(attempt)),
      guard_(guard),
      output_(output),
      terminal_(terminal),
      hosts_(std::move(hosts)),
      stragglers_(options.stragglers),
      standstill_(options.explain_after),
      live_at_(wants_live() ? Deadline::after(milliseconds(0)) : Deadline::never()) {
  if (survives_deaths(options)) survivors_.emplace(options, hosts_, output);
  if (survivors_ && options.discovery) discovery_.emplace(*options.discovery, guard.signal_mask);
}

JobEnd Job::run() {
  look_around();  // ranks of other hosts may have ended while the last of them were started
  while (any_running() && !guard_gone_) {
    wait_for_events(next_step());
    look_around();
  }
  discovery_.reset();
  finish_hosts();
  for (Ending& ending : endings_) ending.last_lines = output_.last_lines(ending.rank);
  const Verdict found = verdict();
  const std::string words = found.summary.empty() ? "" : "lockstep run: " + found.summary;
  if (options_.on_failure && found.exit_code != 0) {
    options_.on_failure(found);
  } else {
    output_.say(words);
  }
  write_remaining_output();
  leave_records(found);
  JobEnd end{.exit_code = found.exit_code == 0 && output_.lost() ? 1 : found.exit_code};
  if (found.exit_code != 0 && stop_.first() == 0 && !guard_gone_) {
    end.failure = found.summary.substr(0, found.summary.find('\n'));
    end.again = !end.failure.empty() && !survivors_ && attempt_.restarts < options_.max_restarts;
  }
  const std::string then = whether_again(end);
  output_.say(then);
  write_remaining_output();
  conclude_hosts(found.exit_code, words + then, end.again);
  return end;
}

std::string Job::whether_again(const JobEnd& end) const {
  if (end.failure.empty() || options_.max_restarts == 0 || survivors_) return "";
  if (end.again) {
    return fmt::format("lockstep run: all ranks start again, restart {} of {} (--max-restarts)\n",
                       attempt_.restarts + 1, options_.max_restarts);
  }
  return fmt::format("lockstep run: given up after {}; what failed first of all: {}\n",
                     base::counted(attempt_.restarts, "restart"),
                     attempt_.first_failure.empty() ? end.failure : attempt_.first_failure);
}

void Job::conclude_hosts(int exit_code, const std::string& summary, bool again) {
  for (const auto& host : hosts_) host->conclude(exit_code, summary, again);
  const Deadline limit = Deadline::after(time_to_hear);
  while (!std::ranges::all_of(hosts_, [](const auto& host) { return host->is_concluded(); }) &&
         !guard_gone_ && !limit.expired()) {
    wait_for_events(limit);
  }
}

void Job::look_around() {
  reap();
  escalate();
  look_at_stragglers();
  look_live();
}

Verdict Job::verdict() {
  if (given_up_) return judge_stopped(endings_, given_up_->who.rank, given_up_->since);
  // Of a rank that the job went on without it is none.
  const bool is_of_another = survivors_ && cause_ && cause_->culprit >= 0 &&
                             std::ranges::find(endings_, cause_->culprit, &Ending::rank) == endings_.end();
  Verdict found = judge(endings_, is_of_another ? std::nullopt : cause_, failed_first_ ? 0 : stop_.first());
  if (survivors_ && found.exit_code != 0 && !survivors_->why_not().empty())
    found.summary += "  " + survivors_->why_not() + "\n";
  return found;
}

void Job::wait_for_events(Deadline deadline) {
  PollSet poll;
  poll.watch(guard_.orders.get(), POLLIN, [this] { take_orders(); });
  for (const auto& host : hosts_) {
    host->watch(poll);
    deadline = deadline.earlier_of(host->wake_at());
  }
  if (attempt_.metrics != nullptr) {
    attempt_.metrics->watch(poll);
    deadline = deadline.earlier_of(attempt_.metrics->wake_at());
  }
  if (discovery_ && goes_on() && any_running()) {
    discovery_->watch(poll);
    deadline = deadline.earlier_of(discovery_->wake_at());
  }
  output_.watch(poll);
  if (any_running()) terminal_.watch(poll);
  poll.wait(deadline);
}

void Job::take_orders() {
  if (guard_.take_orders([&](int signal) { take_order(signal); })) return;
  guard_gone_ = true;
  signal_ranks(SIGKILL, true);
}

void Job::take_order(int signal) {
  if (stop_.take(signal))
    kill_at_ = kill_at_.earlier_of(Deadline::after(stop_.hurried() ? milliseconds(0) : options_.stop_grace));
  if (signal == SIGTSTP || signal == SIGCONT) {
    suspended_ = signal == SIGTSTP;
    stragglers_.forget();
    standstill_.forget();
    if (survivors_) survivors_->forget_stopped_ones();
  }
  signal_ranks(signal, signal != SIGUSR1 && signal != SIGUSR2);
}

void Job::signal_ranks(int signal, bool whole_family) {
  for (const auto& host : hosts_) host->signal(signal, whole_family);
}

void Job::tell_ranks(const FirstCause::Cause& cause) {
  for (const auto& host : hosts_) host->tell(cause);
}

/// Whether a rank's death would not be the end of it.
bool Job::goes_on() const {
  return survivors_ && !told_ && !failed_ && !guard_gone_ && stop_.first() == 0 &&
         survivors_->why_not().empty() && earliest_failure(endings_) == nullptr;
}

void Job::reap() {
  ++moment_;
  for (const auto& host : hosts_) {
    for (Ending& ending : host->take_endings()) {
      ending.moment = moment_;
      ending.by_launcher = told_;
      if (!survivors_ && !ending.failed() && any_running()) tell_absent(ending);
      if (goes_on() && survivors_->take(ending)) continue;
      if (survivors_ && survivors_->has_killed(ending.rank)) ending.by_launcher = true;
      endings_.push_back(std::move(ending));
    }
  }
  if (goes_on()) survivors_->look();
  if (goes_on() && !suspended_ && survivors_->stuck()) end_stopped(*survivors_->stuck());
  if (discovery_ && goes_on()) {
    if (const auto found = discovery_->take())
      found->problem.empty() ? survivors_->take_hosts(found->hosts)
                             : survivors_->note_problem(found->problem);
  }
  note_cause();
  if (!told_) note_failure();
}

void Job::tell_absent(const Ending& ending) {
  const std::string what =
      ending.worlds == 0
          ? "before it had come to init(), where the others wait for it"
          : fmt::format(
                "and does not come to the job's world {}, where the others wait for it: all ranks "
                "have to call init() and shutdown() equally often",
                ending.worlds + 1);
  const Error absent(ErrorCode::peer_lost, describe(ending) + " " + what, ending.rank);
  for (const auto& host : hosts_) host->call_off_world(ending.worlds, absent);
}

// The first that was seen, as long as some host has it: a world whose ranks have failed may be followed by another one, which
// has causes of its own.
void Job::note_cause() {
  std::optional<FirstCause::Cause> first;
  bool holds = false;
  for (const auto& host : hosts_) {
    auto cause = host->first_cause();
    holds = holds || (cause && cause_ && cause->text == cause_->text);
    if (!first) first = std::move(cause);
  }
  if (!holds) cause_ = std::move(first);
}

void Job::note_failure() {
  const Ending* failure = earliest_failure(endings_);
  if (failure == nullptr || failed_) return;
  failed_ = true;
  failed_first_ = stop_.first() == 0;
  for (const auto& host : hosts_) host->note_failure();
  if (!failure->said_goodbye) {  // survivors that wait hear of it now
    tell_ranks({.code = ErrorCode::peer_lost, .culprit = failure->rank, .text = describe(*failure)});
  }
  if (stop_.first() != 0) return;  // the rest has been told to end already
  terminate_at_ = Deadline::after(options_.report_grace);
  kill_at_ = kill_at_.earlier_of(Deadline::after(options_.report_grace + options_.terminate_grace));
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
  const bool may_hang = !endings_.empty() || (survivors_ && survivors_->needs_some());
  if (!may_hang || failed_ || told_ || suspended_ || stop_.first() != 0) {
    look_at_ = Deadline::never();
    return;
  }
  if (!look_at_.is_never() && !look_at_.expired()) return;
  look_at_ = Deadline::after(options_.stragglers.between_looks);
  const std::vector<Straggler> running = stragglers_of(hosts_);
  if (survivors_) survivors_->look_for_stopped_ones(running, options_.stragglers.given_up);
  if (endings_.empty()) return;
  std::vector<int> ended;
  for (const Ending& ending : endings_) ended.push_back(ending.rank);
  std::sort(ended.begin(), ended.end());
  const std::string text = stragglers_.look(ended, running);
  if (!text.empty()) output_.say(in_lines_of_ours(text));
  const auto given_up = stragglers_.given_up();
  if (!given_up) return;
  const std::string why =
      fmt::format("it was stopped for {} after others had ended", base::exact_duration(given_up->since));
  if (survivors_ && survivors_->put_out(given_up->who.rank, why)) return stragglers_.forget();
  given_up_ = given_up;
  end_stopped(given_up->who.rank);
}

/// The job ends for a rank that is stopped.
void Job::end_stopped(int rank) {
  for (const auto& host : hosts_) {
    host->note_failure();
    if (const auto other = host->first_cause()) host->forget_cause(other->text);
  }
  tell_ranks({.code = ErrorCode::timeout, .culprit = rank, .text = fmt::format("rank {} was stopped", rank)});
  terminate_at_ = Deadline::after(milliseconds(0));
  kill_at_ = kill_at_.earlier_of(Deadline::after(options_.terminate_grace));
  escalate();
}

bool Job::wants_live() const {
  return attempt_.metrics != nullptr || options_.explain_after != std::chrono::nanoseconds::max();
}

void Job::look_live() {
  if (!live_at_.expired()) return;
  std::vector<view::LiveHost> hosts;
  for (const auto& host : hosts_) {
    if (auto live = host->look_live()) hosts.push_back(std::move(*live));
  }
  const bool is_known = std::ranges::none_of(hosts_, [](const auto& host) { return host->is_silent(); });
  const bool goes_on = is_known && !failed_ && !told_ && !suspended_ && stop_.first() == 0;
  const bool was_noticed = std::exchange(is_standstill_, goes_on && standstill_.look(hosts));
  std::chrono::nanoseconds next =
      attempt_.metrics != nullptr ? between_live_looks : standstill_.between_looks();
  if (is_standstill_) next = time_to_answer;
  live_at_ = Deadline::after(next);
  if (was_noticed && goes_on && standstill_.lasts() && hosts.size() == hosts_.size()) tell_standstill(hosts);
  if (attempt_.metrics == nullptr) return;
  std::size_t ranks = 0;  // of several launchers each knows its own alone
  for (const view::LiveHost& host : hosts) ranks += host.ranks.size();
  attempt_.metrics->show(std::move(hosts), {.ranks = std::max(options_.ranks, static_cast<int>(ranks)),
                                            .restarts = attempt_.restarts});
}

// Other hosts have answered meanwhile with how it is now.
void Job::tell_standstill(std::vector<view::LiveHost> hosts) {
  std::vector<trace::FlightRecord> records;
  for (view::LiveHost& host : hosts) records.push_back(std::move(host.record));
  const std::string text = view::explain_standstill(join_records(std::move(records)));
  output_.say(in_lines_of_ours(fmt::format(
      "nothing has gone on for {}: {}  `lockstep explain --pid {}` shows all ranks of this host\n",
      base::exact_duration(options_.explain_after), text, ::getppid())));
}

Deadline Job::next_step() const {
  return terminate_at_.earlier_of(kill_at_).earlier_of(look_at_).earlier_of(live_at_);
}

bool Job::any_running() const {
  return std::ranges::any_of(hosts_, [](const auto& host) { return host->any_running(); });
}

void Job::finish_hosts() {
  const auto is_finished = [](const auto& host) { return host->is_finished(); };
  const auto tell = [&](milliseconds grace) {
    for (const auto& host : hosts_) host->finish(grace);
    reap();
  };
  tell(told_ || stop_.hurried() ? milliseconds(0) : options_.leftover_grace);
  while (!std::ranges::all_of(hosts_, is_finished) && !guard_gone_) {
    wait_for_events(Deadline::never());
    if (stop_.hurried() || guard_gone_) tell(milliseconds(0));
    reap();
  }
  int left = 0;
  for (const auto& host : hosts_) left += host->left_behind();
  if (left > 0 && !told_ && stop_.first() == 0) {
    output_.say(fmt::format("lockstep run: ended {} that the ranks had left behind\n",
                            base::counted(left, "process", "processes")));
  }
}

// Whoever reads our output may be slow, which is waited for, or stuck, which must not keep us from ending
// when told to. What can be written without waiting is written in any case: the summary, most of all.
void Job::write_remaining_output() {
  const Deadline patience = stop_.first() == 0 ? Deadline::never() : Deadline::after(options_.stop_grace);
  const int told_before = stop_.first();
  while (!output_.flushed() && !guard_gone_ && !stop_.hurried() && !patience.expired() &&
         stop_.first() == told_before) {
    wait_for_events(patience);
  }
  const Deadline limit = Deadline::after(last_words);
  while (!output_.flushed() && !guard_gone_ && !limit.expired()) wait_for_events(limit);
}

// After the summary, which must not wait for a slow disk.
void Job::leave_records(const Verdict& verdict) {
  const bool stopped_by_user = !failed_first_ && stop_.first() != 0;
  const bool explains = !options_.record_dir.empty() && verdict.exit_code != 0 && !stopped_by_user;
  const bool is_wanted = explains || !options_.profile.folder.empty() || keeps_timeline(options_);
  if (!is_wanted || stop_.hurried() || guard_gone_) return;
  std::vector<trace::FlightRecord> records;
  for (const auto& host : hosts_) {
    if (auto record = host->record()) records.push_back(std::move(*record));
  }
  if (records.empty()) return;
  trace::FlightRecord record = join_records(std::move(records));
  record.job = attempt_.job;
  if (survivors_) {
    std::vector<Ending> departed = survivors_->departed();
    for (Ending& ending : departed) ending.by_launcher = verdict.exit_code == 0;  // it has failed nobody
    note_endings(record, departed);
    survivors_->note_changes(record);
  }
  note_endings(record, endings_);
  if (stopped_by_user) record.ended_by = stop_.first();
  if (explains) output_.say(leave_record(options_.record_dir, record));
  view::Timeline timeline = keeps_timeline(options_) ? take_timeline(record) : view::Timeline();
  const std::string ending = std::filesystem::path(options_.timeline).extension();
  timeline.names = options_.timeline_names;
  if (!options_.timeline.empty())
    output_.say(view::leave_timeline(of_attempt(options_.timeline, ending), timeline, "lockstep run"));
  if (!options_.profile.folder.empty())
    output_.say(view::leave_profile(options_.profile, record, "lockstep run"));
  if (!options_.report.empty())
    output_.say(view::leave_report(of_attempt(options_.report, ""), std::move(timeline), record,
                                   {.limits = options_.profile.limits}, "lockstep run"));
  write_remaining_output();
}

view::Timeline Job::take_timeline(const trace::FlightRecord& record) {
  view::Timeline timeline{.job = record.job};
  for (const trace::FlightGroup& group : record.groups)
    timeline.groups.emplace_back(group.number, group.name);
  for (const auto& host : hosts_) {
    std::ranges::move(host->take_timeline(), std::back_inserter(timeline.ranks));
    timeline.clock_error_ns = std::max(timeline.clock_error_ns, host->clock_error_ns());
  }
  std::ranges::sort(timeline.ranks, {}, &view::RankTimeline::rank);
  return timeline;
}

std::string Job::of_attempt(const std::string& name, const std::string& ending) const {
  if (attempt_.restarts == 0) return name;
  return fmt::format("{}.restart{}{}", name.substr(0, name.size() - ending.size()), attempt_.restarts,
                     ending);
}

}  // namespace lockstep::launch

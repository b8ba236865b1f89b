#include "lockstep/launch/survivors.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/words.h"
#include "lockstep/launch/hosts/this_host.h"
#include "lockstep/trace/clock.h"

namespace lockstep::launch {
namespace {

std::vector<Roster::Rule> rules_of(const RunOptions& options) {
  std::vector<Roster::Rule> rules;
  for (const Role& role : options.roles) {
    rules.insert(rules.end(), static_cast<std::size_t>(role.ranks),
                 {.is_tolerated = role.is_tolerated, .restarts = role.restarts});
  }
  return rules;
}

/// Which ranks begin: of each host the first ones, as many as RunOptions::begins says.
std::vector<bool> begins_of(const RunOptions& options) {
  std::vector<bool> begins;
  for (std::size_t host = 0; host < options.begins.size(); ++host) {
    const int slots = options.hosts.empty() ? options.ranks : options.hosts[host].slots;
    for (int i = 0; i < slots; ++i) begins.push_back(i < options.begins[host]);
  }
  return begins;
}

std::string how(const Ending& ending) {
  if (!ending.lost.empty()) return ending.lost;
  return (WIFSIGNALED(ending.wait_status) ? "was " : "ended with ") + describe(ending.wait_status);
}

}  // namespace

Survivors::Survivors(const RunOptions& options, const std::vector<std::unique_ptr<HostRanks>>& hosts,
                     RankOutput& output)
    : ends_together_(options.ends_together),
      host_names_(options.hosts),
      hosts_(hosts),
      output_(output),
      roster_(rules_of(options), options.least_ranks, begins_of(options)) {
  for (int rank = 0; rank < options.ranks; ++rank) {
    running_.push_back(roster_.is_in(rank));
    needed_ += is_needed(rank) ? 1 : 0;
  }
  publish();
}

HostRanks& Survivors::host_of(int rank) const {
  return **std::ranges::find_if(hosts_, [&](const auto& host) { return host->has_rank(rank); });
}

void Survivors::tell(const std::string& what) {
  is_worth_telling_ = true;  // an end with 0 alone is not
  output_.say("lockstep run: " + what + "\n");
  changes_.push_back({.at_ns = trace::now_ns(),
                      .view = roster_.view().number,
                      .text = what.substr(0, trace::FlightLimits::text_bytes / 2)});
  if (changes_.size() <= trace::FlightLimits::changes) return;
  changes_.erase(changes_.begin());
  ++changes_left_out_;
}

void Survivors::note_changes(trace::FlightRecord& record) const {
  record.changes = changes_;
  record.changes_left_out = changes_left_out_;
}

std::string Survivors::who_is_left() const {
  std::vector<int> ranks = roster_.view().ranks();
  std::ranges::sort(ranks);
  if (ranks.empty()) return fmt::format("view {} has nobody", roster_.view().number);
  return fmt::format("view {} has {}", roster_.view().number, base::name_rank_ranges(ranks));
}

std::string Survivors::too_few() const {
  if (roster_.left() == 0) return "no rank is left";
  return fmt::format("{} left, and the job needs {} (--min-np)",
                     roster_.left() == 1 ? "1 rank is" : fmt::format("{} ranks are", roster_.left()),
                     roster_.least());
}

bool Survivors::take(Ending& ending) {
  const int rank = ending.rank;
  running_[static_cast<std::size_t>(rank)] = false;
  if (!ending.failed()) {
    note_done(rank);
    return false;
  }
  const bool was_out = roster_.is_fenced(rank);
  const Roster::Rule& rule = roster_.rule(rank);
  if (const auto why = killed_.find(rank); why != killed_.end()) {
    ending.why_killed = "by the launcher: " + why->second;
    killed_.erase(why);
  }
  if (is_done_ && !was_out && roster_.life(rank).incarnation > 0 && WIFSIGNALED(ending.wait_status)) {
    departed_.push_back(ending);
    roster_.note_end(rank);
    tell(fmt::format("rank {} (pid {}), which was started again, is ended: others are done", rank,
                     ending.pid));
    return true;
  }
  const auto answer = roster_.note_failure(rank, how(ending), host_of(rank).can_start());
  if (answer == Roster::Answer::ends_job) {
    if (rule.restarts > 0 && roster_.restarts_of(rank) >= rule.restarts)
      why_not_ = fmt::format("it was given up after {}", base::counted(rule.restarts, "restart"));
    if (rule.is_tolerated) why_not_ += (why_not_.empty() ? "" : "; ") + too_few();
    return false;
  }
  departed_.push_back(ending);
  if (answer == Roster::Answer::goes_on) {
    if (is_ended_) {
      tell(fmt::format("rank {} (pid {}), which was out of the job, is ended with it", rank, ending.pid));
    } else {
      tell(fmt::format("{}; {}", describe(ending),
                       was_out ? "it was out of the job" : "the job goes on without it"));
    }
    return true;
  }
  tell(fmt::format("{}; it is started again, restart {} of {}", describe(ending), roster_.restarts_of(rank),
                   rule.restarts));
  start(rank);
  return true;
}

void Survivors::start(int rank) {
  publish();  // before it looks
  running_[static_cast<std::size_t>(rank)] = true;
  host_of(rank).start_again(roster_.life(rank));
}

void Survivors::take_hosts(const std::vector<Host>& hosts) {
  const auto once = [&](const std::string& text) {
    if (told_once_.insert(text).second) tell(text);
  };
  problem_.clear();
  std::vector<bool> known(hosts.size());
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const auto is_it = [&](const Host& host) {
      return host_names_.empty() ? is_this_host(host.name) : host.name == host_names_[i].name;
    };
    int slots = 0;
    for (std::size_t j = 0; j < hosts.size(); ++j) {
      if (!is_it(hosts[j])) continue;
      known[j] = true;
      slots += hosts[j].slots;
    }
    take_slots(*hosts_[i], host_names_.empty() ? "this host" : host_names_[i].name, slots);
  }
  for (std::size_t j = 0; j < hosts.size(); ++j) {
    if (!known[j])
      once(fmt::format(
          "host {} was not there when the job began, and is not taken; start the job again to have it",
          hosts[j].name));
  }
}

void Survivors::take_slots(const HostRanks& host, const std::string& name, int slots) {
  int number = 0;
  for (int rank = 0; rank < static_cast<int>(running_.size()); ++rank) {
    if (!host.has_rank(rank)) continue;
    const bool has_slot = number++ < slots;
    if (has_slot && !running_[static_cast<std::size_t>(rank)] && host.can_start() && roster_.begin(rank)) {
      tell(fmt::format("{} has {}: rank {} is started", name, base::counted(slots, "slot"), rank));
      start(rank);
    } else if (!has_slot && running_[static_cast<std::size_t>(rank)]) {
      const std::string why = fmt::format("{} has {} now", name, base::counted(slots, "slot"));
      if (!roster_.retire(rank, why)) continue;
      tell(fmt::format("rank {} is ended: {}", rank, why));
      killed_[rank] = why;
      host_of(rank).signal(SIGKILL, true, rank);
    }
  }
}

void Survivors::note_problem(const std::string& problem) {
  if (problem != problem_) tell(problem + "; hosts stay as they were");
  problem_ = problem;
}

bool Survivors::is_needed(int rank) const {
  return !roster_.rule(rank).is_tolerated && roster_.rule(rank).restarts == 0;
}

// All is done when one of ranks that do one thing together has ended well, or all of those without which the others have nothing to
// do: servers, say.
void Survivors::note_done(int rank) {
  roster_.note_end(rank);
  const bool was_last_needed = is_needed(rank) && --needed_ == 0;
  if (!(ends_together_ || was_last_needed) || is_done_) return;
  is_done_ = true;
  roster_.start_nobody();
  for (const auto& host : hosts_) host->end_latecomers();
}

void Survivors::look() {
  for (const auto& host : hosts_) {
    take_arrivals(*host);
    take_cause(*host);
  }
  publish();
  end_fenced();
}

void Survivors::take_arrivals(HostRanks& host) {
  for (const Life& life : host.take_arrivals()) {
    if (life == roster_.life(life.rank) && roster_.note_arrival(life.rank))
      tell(fmt::format("rank {} is in the job{}", life.rank,
                       roster_.restarts_of(life.rank) > 0 ? " again" : ""));
  }
}

// A cause stands in the way of the next one until it is forgotten: here each has its own consequences. Where ranks called different
// things no rank is to be done without.
void Survivors::take_cause(HostRanks& host) {
  const auto cause = host.first_cause();
  if (!cause || cause->code == ErrorCode::mismatch) return;
  const bool does_not_answer = cause->code == ErrorCode::timeout || cause->code == ErrorCode::aborted;
  if (does_not_answer && !stuck_) stuck_ = awaited_one(cause->culprit);
  for (const int rank : cause->culprit >= 0 ? std::vector{cause->culprit} : cause->several) {
    if (does_not_answer && rank >= 0 && rank < static_cast<int>(running_.size())) put_out(rank, cause->text);
  }
  host.forget_cause(cause->text);
}

std::optional<int> Survivors::stopped_one(const std::vector<Straggler>& running) const {
  const auto found = std::ranges::find_if(
      running, [&](const Straggler& rank) { return rank.is_stopped && is_needed(rank.rank); });
  return found == running.end() ? std::nullopt : std::optional(found->rank);
}

// Who does not answer may itself wait for one that was found stopped before.
std::optional<int> Survivors::awaited_one(int culprit) const {
  const auto found = stopped_one(stragglers_of(hosts_));
  const bool was_found = stopped_since_ && found == stopped_since_->first;
  return found == culprit || was_found ? found : std::nullopt;
}

void Survivors::look_for_stopped_ones(const std::vector<Straggler>& running,
                                      std::chrono::nanoseconds at_most) {
  const auto found = stopped_one(running);
  if (!found || !stopped_since_ || stopped_since_->first != *found) stopped_since_.reset();
  if (!found) return;
  if (!stopped_since_) stopped_since_.emplace(*found, Deadline::after(at_most));
  if (stopped_since_->second.expired()) stuck_ = found;
}

bool Survivors::put_out(int rank, const std::string& why) {
  if (!roster_.is_in(rank)) return false;
  switch (roster_.fence(rank, why)) {
    case Roster::Fenced::no: return false;
    case Roster::Fenced::out:
      tell(fmt::format("rank {} is out of the job, which goes on without it: {}", rank, why));
      break;
    case Roster::Fenced::to_be_ended:
      tell(fmt::format("rank {} is ended: {}", rank, why));
      killed_[rank] = why;
      host_of(rank).signal(SIGKILL, true, rank);
  }
  return true;
}

// With too few ranks the job is about to end, and nobody is to go on as if it did not.
void Survivors::publish() {
  if (roster_.left() < roster_.least() || !roster_.take_change()) return;
  const ViewNews news{.view = roster_.view(), .out = roster_.take_out()};
  for (const auto& host : hosts_) host->publish(news);
  if (is_worth_telling_ && !is_done_) tell(who_is_left());
  is_worth_telling_ = false;
}

// When nobody else is left.
void Survivors::end_fenced() {
  for (int rank = 0; rank < static_cast<int>(running_.size()); ++rank) {
    if (running_[static_cast<std::size_t>(rank)] && !roster_.is_fenced(rank)) return;
  }
  for (int rank = 0; rank < static_cast<int>(running_.size()); ++rank) {
    if (!running_[static_cast<std::size_t>(rank)]) continue;
    is_ended_ = true;
    host_of(rank).signal(SIGKILL, true, rank);
  }
}

}  // namespace lockstep::launch

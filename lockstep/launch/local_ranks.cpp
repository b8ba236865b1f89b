#include "lockstep/launch/local_ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/process_status.h"
#include "lockstep/group/meet.h"
#include "lockstep/group/place_in_job.h"
#include "lockstep/launch/descendants.h"
#include "lockstep/launch/flight_recorder.h"
#include "lockstep/launch/limits.h"
#include "lockstep/launch/live_record.h"
#include "lockstep/rendezvous/tcp_store.h"
#include "lockstep/rendezvous/view_board.h"
#include "lockstep/trace/clock.h"
#include "lockstep/view/profile/page_record.h"

namespace lockstep::launch {
namespace {

// At what ranks that may die and come back say of themselves.
constexpr std::chrono::milliseconds between_looks{50};
// It is in this process.
constexpr std::chrono::seconds time_of_store{10};

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

std::vector<int> world_ranks(const std::vector<RankPlace>& places) {
  std::vector<int> ranks;
  for (const RankPlace& place : places) ranks.push_back(place.rank);
  return ranks;
}

}  // namespace

LocalRanks::LocalRanks(LocalPlan plan, const Secret& secret, OutputTaker& output)
    : plan_(std::move(plan)),
      child_events_(watch_children()),
      secret_fd_(secret.to_memfd()),
      page_(ControlPage::create(static_cast<int>(plan_.places.size()))),
      pipes_(world_ranks(plan_.places), output),
      processes_(plan_.places.size()) {
  if (plan_.keeps_timeline) timeline_.emplace(page_, world_ranks(plan_.places));
  plan_.facts.control_fd = page_.fd();
  const Variables defaults = default_variables(this_environment(), plan_.environment);
  plan_.environment.insert(plan_.environment.end(), defaults.begin(), defaults.end());
  plan_.facts.secret_fd = secret_fd_.get();
}

void LocalRanks::start(UniqueFd input) {
  const UniqueFd nothing = open_nothing();
  const auto all = static_cast<int>(plan_.places.size());
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::min(plan_.begins.value_or(all), all)); ++i) {
    const int first = input ? input.get() : STDIN_FILENO;
    start_rank(i, plan_.places[i].rank == 0 ? first : nothing.get());
  }
}

void LocalRanks::serve_store(Listener listener, const Secret& secret) {
  trust_ = {secret, false};
  store_.emplace(std::move(listener), StoreServerOptions{.trust = trust_, .job = plan_.facts.job});
}

const std::shared_ptr<Store>& LocalRanks::client() {
  if (client_) return client_;
  client_ = std::make_shared<TcpStore>(
      store_->endpoint(), Deadline::after(time_of_store),
      TcpStoreOptions{.trust = trust_, .job = plan_.facts.job, .operation_timeout = time_of_store});
  return client_;
}

void LocalRanks::start_rank(std::size_t local_rank, int input, int incarnation) {
  const RankPlace& place = plan_.places[local_rank];
  const RankPipes::Ends ends = pipes_.open(place.local_rank);
  const auto& pinned = plan_.placement.pinned;
  ChildOptions child{.environment = plan_.environment,
                     .folder = plan_.folder,
                     .standard = {input, ends.out.get(), ends.err.get()},
                     .inherited = {plan_.facts.control_fd, plan_.facts.secret_fd},
                     .cores = pinned.empty() ? std::vector<int>() : pinned[local_rank],
                     .signal_mask = plan_.signal_mask};
  const Variables own = rank_variables(place, plan_.facts, plan_.roles, incarnation);
  child.environment.insert(child.environment.end(), own.begin(), own.end());
  pid_t pid = 0;
  if (plan_.function) {
    child.inherited.insert(child.inherited.end(), plan_.inherited.begin(), plan_.inherited.end());
    pid = start_function([&] { return plan_.function(place.rank); }, child);
  } else {
    const std::size_t role = role_of(plan_.roles, place.rank).number;
    pid = start_program(plan_.programs[role], plan_.roles[role].command, child);
  }
  processes_[local_rank] = {
      .pid = pid, .running = true, .incarnation = incarnation, .has_come = incarnation == 0};
}

void LocalRanks::watch(PollSet& poll) {
  poll.watch(child_events_.get(), POLLIN, [this] {
    signalfd_siginfo ignored{};
    (void)!::read(child_events_.get(), &ignored, sizeof(ignored));
  });
  pipes_.watch(poll);
}

Deadline LocalRanks::wake_at() const {
  const Deadline leftovers = leftovers_until_ && !left_behind_ ? *leftovers_until_ : Deadline::never();
  if (!any_running()) return leftovers;
  const Deadline timeline = timeline_ ? timeline_->next_look() : Deadline::never();
  const Deadline ranks = plan_.facts.has_views ? Deadline::after(between_looks) : Deadline::never();
  return leftovers.earlier_of(timeline).earlier_of(ranks);
}

std::vector<view::RankTimeline> LocalRanks::take_timeline() {
  return timeline_ ? timeline_->take() : std::vector<view::RankTimeline>();
}

std::vector<Ending> LocalRanks::take_endings() {
  reap();
  end_those_not_started();
  if (timeline_) timeline_->look();
  if (leftovers_until_ && !left_behind_ && (leftovers_until_->expired() || !has_children())) end_leftovers();
  return std::exchange(endings_, {});
}

void LocalRanks::reap() {
  int status = 0;
  rusage usage{};
  for (pid_t pid = 0; (pid = ::wait4(-1, &status, WNOHANG, &usage)) > 0;) {
    const auto found = std::ranges::find(processes_, pid, &Process::pid);
    if (found == processes_.end() || !found->running) continue;  // an orphan of a rank
    found->running = false;
    const auto local_rank = static_cast<int>(found - processes_.begin());
    const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    endings_.push_back({.rank = plan_.places[static_cast<std::size_t>(local_rank)].rank,
                        .pid = pid,
                        .wait_status = status,
                        .said_goodbye = page_.status(local_rank).said_goodbye.load() != 0,
                        .worlds = page_.status(local_rank).worlds.load(),
                        .was_stopped = !states_.empty() && states_[static_cast<std::size_t>(local_rank)] ==
                                                               trace::ProcessState::stopped,
                        .ended_at_ns = trace::now_ns(),
                        .costs = base::costs_of(usage),
                        .why_killed = was_killed ? oom_.explain_kill() : ""});
  }
}

/// They have no process whose end would be noticed.
void LocalRanks::end_those_not_started() {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].why_not.empty()) continue;
    endings_.push_back({.rank = plan_.places[i].rank,
                        .wait_status = lost_status,
                        .lost = std::exchange(processes_[i].why_not, {})});
    processes_[i].running = false;
  }
}

bool LocalRanks::any_running() const { return std::ranges::any_of(processes_, &Process::running); }

// A signal that a terminal would send to a whole pipeline goes to all of a rank's family.
void LocalRanks::signal(int signal, bool whole_family, std::optional<int> rank) {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Process& process = processes_[i];
    if (process.running && process.pid > 0 && (!rank || plan_.places[i].rank == *rank))
      (void)::kill(whole_family ? -process.pid : process.pid, signal);
  }
}

void LocalRanks::tell(const FirstCause::Cause& cause) {
  (void)page_.first_cause().set(cause);
  page_.doorbell().ring();
}

void LocalRanks::call_off_world(int number, const Error& absent) {
  if (!store_) return;
  try {
    call_off_without(*JobStore::open(nullptr, client(), number).of_world, absent);
  } catch (const Error&) {  // the others will have to find out by themselves
  }
}

void LocalRanks::forget_cause(const std::string& text) {
  const auto cause = page_.first_cause().get();
  if (cause && cause->text == text) page_.first_cause().clear();
}

void LocalRanks::publish(const ViewNews& news) {
  if (store_) {
    ViewBoard board(*client());
    for (const auto& [life, why] : news.out) board.note_out(life, why);
    board.publish(news.view);
  }
  page_.set_view(news.view.number);
}

bool LocalRanks::has_rank(int rank) const {
  return std::ranges::find(plan_.places, rank, &RankPlace::rank) != plan_.places.end();
}

std::size_t LocalRanks::index_of(int rank) const {
  const auto found = std::ranges::find(plan_.places, rank, &RankPlace::rank);
  if (found == plan_.places.end())
    throw Error(ErrorCode::corrupt_data, "rank " + std::to_string(rank) + " is not on this host");
  return static_cast<std::size_t>(found - plan_.places.begin());
}

void LocalRanks::start_again(const Life& life) {
  const std::size_t index = index_of(life.rank);
  if (processes_[index].running)
    throw Error(ErrorCode::corrupt_data, "rank " + std::to_string(life.rank) + " has not ended");
  if (processes_[index].pid > 0) (void)::kill(-processes_[index].pid, SIGKILL);  // what it has left behind
  page_.status(static_cast<int>(index)).begin_life();
  try {
    start_rank(index, open_nothing().get(), life.incarnation);
  } catch (const Error& error) {
    processes_[index] = {.running = true,
                         .incarnation = life.incarnation,
                         .why_not = std::string("it could not be started again: ") + error.what()};
  }
}

void LocalRanks::end_latecomers() {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Process& process = processes_[i];
    const bool is_late = process.incarnation > 0 && page_.status(static_cast<int>(i)).has_worked.load() == 0;
    if (process.running && process.pid > 0 && is_late) (void)::kill(-process.pid, SIGKILL);
  }
}

std::vector<Life> LocalRanks::take_arrivals() {
  std::vector<Life> arrived;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Process& process = processes_[i];
    const bool wants_in = page_.status(static_cast<int>(i)).wants_in.load() == process.incarnation;
    if (process.has_come || !process.running || !wants_in) continue;
    process.has_come = true;
    arrived.push_back({.rank = plan_.places[i].rank, .incarnation = process.incarnation});
  }
  return arrived;
}

void LocalRanks::note_failure() {
  failed_at_ns_ = trace::now_ns();
  states_.clear();
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const pid_t joined = page_.status(static_cast<int>(i)).pid.load();
    states_.push_back(state_of(joined > 0 ? joined : processes_[i].pid));
  }
}

// A rank may be a shell around the program that joined the job.
std::vector<Straggler> LocalRanks::stragglers() {
  std::vector<Straggler> left;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (!processes_[i].running || processes_[i].pid <= 0) continue;
    const auto is_stopped = [](pid_t pid) { return base::read_status(pid).state == 'T'; };
    const pid_t started = processes_[i].pid, joined = page_.status(static_cast<int>(i)).pid.load();
    const bool is_family = joined > 0 && ::getpgid(joined) == started;
    const bool is_inside = !is_stopped(started) && is_family && is_stopped(joined);
    left.push_back({.rank = plan_.places[i].rank,
                    .pid = is_inside ? joined : started,
                    .is_stopped = is_inside || is_stopped(started)});
  }
  return left;
}

std::optional<view::LiveHost> LocalRanks::look_live() {
  if (!live_) live_.emplace(page_, world_ranks(plan_.places), plan_.facts.ranks);
  view::LiveHost host = live_->look();
  note_states(host.record);
  return host;
}

void LocalRanks::finish(std::chrono::milliseconds grace) {
  leftovers_until_ = leftovers_until_.value_or(Deadline::never()).earlier_of(Deadline::after(grace));
}

void LocalRanks::end_leftovers() {
  left_behind_ = kill_descendants(Deadline::after(killing_limit));
  pipes_.finish();
}

std::vector<pid_t> LocalRanks::pids() const {
  std::vector<pid_t> all;
  for (const Process& process : processes_) all.push_back(process.pid);
  return all;
}

std::optional<trace::FlightRecord> LocalRanks::record() const {
  trace::FlightRecord record = view::read_record(page_, world_ranks(plan_.places), plan_.facts.ranks);
  record.at_ns = failed_at_ns_ != 0 ? failed_at_ns_ : trace::now_ns();
  for (std::size_t i = 0; i < record.ranks.size(); ++i) {
    trace::FlightRank& rank = record.ranks[i];
    if (!rank.joined) rank.pid = processes_[i].pid;
    rank.state = states_.empty() ? trace::ProcessState::gone : states_[i];
  }
  return record;
}

}  // namespace lockstep::launch

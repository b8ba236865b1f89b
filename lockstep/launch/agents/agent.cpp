#include "lockstep/launch/agents/agent.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/system_file.h"
#include "lockstep/base/words.h"
#include "lockstep/group/interface_address.h"
#include "lockstep/launch/agents/live_messages.h"
#include "lockstep/launch/agents/message_pipe.h"
#include "lockstep/launch/agents/output_messages.h"
#include "lockstep/launch/agents/rank_input.h"
#include "lockstep/launch/agents/timeline_messages.h"
#include "lockstep/launch/agents/wire.h"
#include "lockstep/launch/descendants.h"
#include "lockstep/launch/guard.h"
#include "lockstep/launch/local_ranks.h"
#include "lockstep/launch/master_port.h"
#include "lockstep/launch/output/rank_output.h"
#include "lockstep/launch/placement.h"
#include "lockstep/launch/program.h"
#include "lockstep/launch/stop_orders.h"
#include "lockstep/topology/topology.h"
#include "lockstep/trace/clock.h"

namespace lockstep::launch::agents {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t record_piece_bytes = std::size_t{1} << 20;
constexpr milliseconds probe_time{5000};
constexpr milliseconds stop_grace{2000};  // from a signal to the agent itself to the ranks' end

std::string network_of_this_process() {
  struct stat status {};
  if (::stat("/proc/self/ns/net", &status) != 0) throw_system("/proc/self/ns/net");
  return std::to_string(status.st_ino);
}

int all_of(const std::vector<std::int32_t>& ranks_of_hosts) {
  return std::accumulate(ranks_of_hosts.begin(), ranks_of_hosts.end(), 0);
}

ViewNews news_of(const Published& published) {
  const auto life_of = [](const LifeFields& life) { return Life{life.rank, life.incarnation}; };
  ViewNews news{.view = {.number = published.number}};
  std::ranges::transform(published.members, std::back_inserter(news.view.members), life_of);
  for (const auto& [life, why] : published.out) news.out.emplace_back(life_of(life), why);
  return news;
}

class Agent {
 public:
  /// `own`: of a launcher that has come with its own program; else nullptr, and a launcher elsewhere says everything.
  Agent(GuardLine& guard, MessagePipe pipe, const RunOptions* own)
      : guard_(guard), pipe_(std::move(pipe)), own_(own) {}

  AgentEnd run();

 private:
  void greet();
  void take(const Message& message);
  void take_or_refuse(const Message& message);
  void plan(const Plan& told);
  void use_own(Plan& plan);
  void place_here(const Plan& plan);
  void probe(const Probe& probe);
  void turn_away();
  void serve(const Serve& serve);
  void start(const Start& start);
  void tell_stragglers();
  void finish(const Finish& finish);
  void take_orders();
  void report();
  void send_record();
  void send_last_lines();
  void show_rest();
  bool is_alone() const { return pipe_.is_over() || guard_gone_ || stopped_.expired(); }
  bool is_over() const {
    return own_ != nullptr ? conclusion_.has_value() : is_done_ && pipe_.queued_bytes() == 0;
  }
  OutputTaker& output() { return shown_ ? static_cast<OutputTaker&>(*shown_) : output_; }

  GuardLine& guard_;
  MessagePipe pipe_;
  const RunOptions* own_;
  OutputMessages output_{pipe_};
  std::optional<RankOutput> shown_;  // in place of it, where we have a terminal of our own
  RankInput input_;
  std::optional<Secret> secret_;
  LocalPlan local_;
  std::optional<Listener> door_;
  std::optional<Listener> store_;
  std::optional<LocalRanks> ranks_;
  std::string cause_told_;
  bool wants_record_ = false;
  bool is_done_ = false;
  bool guard_gone_ = false;
  StopOrders stop_;
  Deadline stopped_ = Deadline::never();
  std::vector<int> failed_;  // ranks
  std::optional<Conclusion> conclusion_;
};

AgentEnd Agent::run() {
  greet();
  while (!is_alone() && !is_over()) {
    PollSet poll;
    poll.watch(guard_.orders.get(), POLLIN, [this] { take_orders(); });
    pipe_.watch(poll, [this](const Message& message) { take_or_refuse(message); });
    input_.watch(poll);
    if (door_) poll.watch(door_->fd(), POLLIN, [this] { turn_away(); });
    if (ranks_) ranks_->watch(poll);
    if (shown_) shown_->watch(poll);
    poll.wait(stopped_.earlier_of(ranks_ ? ranks_->wake_at() : Deadline::never()));
    report();
  }
  (void)kill_descendants(Deadline::after(killing_limit));
  if (shown_) show_rest();
  return {.is_done = is_done_, .stopped_by = stop_.first(), .conclusion = conclusion_};
}

// Whoever reads it may be slow, which is waited for until we are told to end.
void Agent::show_rest() {
  while (!shown_->flushed() && !guard_gone_ && !stopped_.expired()) {
    PollSet poll;
    poll.watch(guard_.orders.get(), POLLIN, [this] { take_orders(); });
    shown_->watch(poll);
    poll.wait(stopped_);
  }
}

void Agent::greet() {
  pipe_.greet(LOCKSTEP_VERSION);
  pipe_.send(Hello{.host = base::host_name(),
                   .machine = base::system_line("/proc/sys/kernel/random/boot_id"),
                   .network = network_of_this_process(),
                   .addresses = own_addresses(),
                   .clock_ns = trace::now_ns(),
                   .slots = own_ != nullptr ? own_->ranks : 0,
                   .least_hosts = own_ != nullptr ? own_->nodes->least : 0,
                   .most_hosts = own_ != nullptr ? own_->nodes->most : 0});
}

void Agent::take_or_refuse(const Message& message) {
  try {
    take(message);
  } catch (const CannotExecute& error) {
    pipe_.send(Refused{.exit_code = cannot_execute, .why = error.what()});
  } catch (const Error& error) {
    pipe_.send(Refused{.exit_code = 1, .why = error.what()});
  }
}

void Agent::take(const Message& message) {
  const auto require_ranks = [&] {
    if (!ranks_) throw Error(ErrorCode::corrupt_data, "there are no ranks yet");
  };
  switch (message.kind) {
    case Kind::plan: return plan(content_of<Plan>(message));
    case Kind::probe: return probe(content_of<Probe>(message));
    case Kind::serve: return serve(content_of<Serve>(message));
    case Kind::start: return start(content_of<Start>(message));
    case Kind::room: return output_.add_room(content_of<Room>(message));
    case Kind::reader_gone: return output_.note_gone(content_of<ReaderGone>(message));
    case Kind::input: return input_.add(content_of<Input>(message).bytes);
    case Kind::finish: return finish(content_of<Finish>(message));
    case Kind::clock_asked: {
      const auto asked = content_of<ClockAsked>(message);
      return pipe_.send(ClockTold{.asked_ns = asked.asked_ns, .told_ns = trace::now_ns()});
    }
    case Kind::conclusion: conclusion_ = content_of<Conclusion>(message); return;
    default: break;
  }
  require_ranks();
  switch (message.kind) {
    case Kind::signal: {
      const auto signal = content_of<Signal>(message);
      return ranks_->signal(signal.number, signal.whole_family != 0,
                            signal.rank < 0 ? std::nullopt : std::optional(signal.rank));
    }
    case Kind::tell: {
      const auto cause = content_of<Tell>(message);
      return ranks_->tell(
          {.code = cause.code, .culprit = cause.culprit, .reporter = cause.reporter, .text = cause.text});
    }
    case Kind::call_off_world: {
      const auto absence = content_of<CallOffWorld>(message);
      return ranks_->call_off_world(absence.number,
                                    Error(ErrorCode::peer_lost, absence.text, absence.absent));
    }
    case Kind::forget_cause: return ranks_->forget_cause(content_of<ForgetCause>(message).text);
    case Kind::published: return ranks_->publish(news_of(content_of<Published>(message)));
    case Kind::start_again: {
      const auto life = content_of<StartAgain>(message);
      return ranks_->start_again({.rank = life.rank, .incarnation = life.incarnation});
    }
    case Kind::end_latecomers: return ranks_->end_latecomers();
    case Kind::note_failure: return ranks_->note_failure();
    case Kind::look: return tell_stragglers();
    case Kind::live_asked: return send_live(pipe_, ranks_->look_live());
    default:
      throw Error(
          ErrorCode::corrupt_data,
          "a message of kind " + std::to_string(static_cast<int>(message.kind)) + " is not for an agent");
  }
}

void Agent::plan(const Plan& told) {
  Plan plan = told;
  if (own_ != nullptr) use_own(plan);
  const auto hosts = plan.ranks_of_hosts.size();
  const bool makes_sense =
      plan.host >= 0 && static_cast<std::size_t>(plan.host) < hosts &&
      std::ranges::all_of(plan.roles,
                          [](const RoleFields& role) { return role.ranks > 0 && !role.command.empty(); }) &&
      std::ranges::all_of(plan.ranks_of_hosts, [](int ranks) { return ranks > 0; }) &&
      (plan.begins.empty() || plan.begins.size() == hosts);
  int ranks_of_roles = 0;
  for (const RoleFields& role : plan.roles) ranks_of_roles += role.ranks;
  if (!makes_sense || ranks_of_roles != all_of(plan.ranks_of_hosts))
    throw Error(ErrorCode::corrupt_data, "a plan that makes no sense");
  for (const auto& [name, value] : plan.variables) {
    if (::setenv(name.c_str(), value.c_str(), 1) != 0) throw_system("setting " + name);
  }
  if (!plan.folder.empty() && ::chdir(plan.folder.c_str()) != 0) {
    throw Error(ErrorCode::system, "the folder " + plan.folder + " is not there (" + std::strerror(errno) +
                                       "); pass --wdir DIR that every host has");
  }
  for (const RoleFields& role : plan.roles) {
    const Program program = find_program(role.command.front(), search_path());
    if (!program.problem.empty())
      return pipe_.send(Refused{.exit_code = program.exit_code, .why = program.problem});
    local_.programs.push_back(program.path);
    local_.roles.push_back({.name = role.name, .ranks = role.ranks, .command = role.command});
  }
  if (!plan.previous_job.empty()) end_job(plan.previous_job, Deadline::after(killing_limit));
  secret_ = own_ != nullptr ? own_->nodes->secret : Secret::from_bytes(std::as_bytes(std::span(plan.secret)));
  local_.signal_mask = guard_.signal_mask;
  local_.keeps_timeline = plan.keeps_timeline != 0;
  place_here(plan);
  Planned planned{.placement = local_.placement.line};
  if (plan.opens_door != 0) {
    door_ = Listener::bind_all_addresses(0);
    planned.door = door_->endpoint().port;
  }
  pipe_.send(planned);
}

/// Our own launcher's options stand in for the other's.
void Agent::use_own(Plan& plan) {
  plan.roles.clear();
  for (const Role& role : roles_of(*own_))
    plan.roles.push_back({.name = role.name, .ranks = all_of(plan.ranks_of_hosts), .command = role.command});
  plan.folder = own_->remote.folder;
  plan.variables = own_->remote.variables;
  plan.pin = static_cast<std::uint8_t>(own_->pin);
  shown_.emplace(own_->output, plan.run, plan.restarts);
}

void Agent::place_here(const Plan& plan) {
  for (const RankPlace& place : place_ranks(plan.ranks_of_hosts)) {
    if (place.host == plan.host) local_.places.push_back(place);
  }
  const auto ranks = static_cast<int>(local_.places.size());
  if (!plan.begins.empty()) local_.begins = plan.begins[static_cast<std::size_t>(plan.host)];
  const int before = std::max(plan.ranks_before_on_machine, 0);
  const int all = std::max(plan.ranks_on_machine, before + ranks);
  local_.placement = place(topology::find_cores(), placement_request(all, plan.pin != 0));
  auto& pinned = local_.placement.pinned;
  if (!pinned.empty()) {  // of all agents' ranks on this machine, ours
    pinned = {pinned.begin() + before, pinned.begin() + before + ranks};
  }
  local_.facts = {.ranks = all_of(plan.ranks_of_hosts),
                  .job = plan.job,
                  .host_name = plan.host_name,
                  .node = plan.is_one_of_several_here != 0 ? plan.host : -1,
                  .cores = local_.placement.cores,
                  .threads = local_.placement.threads,
                  .restarts = plan.restarts,
                  .max_restarts = plan.max_restarts,
                  .has_views = plan.has_views != 0};
}

void Agent::probe(const Probe& probe) {
  Probed probed;
  for (const std::string& endpoint : probe.endpoints) {
    std::string problem;
    try {
      (void)Socket::connect_once(Endpoint::parse(endpoint), Deadline::after(probe_time));
    } catch (const Error& error) {
      problem = error.what();
    }
    probed.problems.push_back(problem);
  }
  pipe_.send(probed);
}

/// Whoever was only to see whether this host can be reached.
void Agent::turn_away() try {
  if (door_) (void)door_->try_accept();  // a message of the same moment may have closed it
} catch (const Error&) {
}

void Agent::serve(const Serve& serve) {
  door_.reset();
  store_ = Listener::bind(Endpoint::tcp(serve.address, 0));
  const std::uint16_t port = pick_master_port(serve.address, serve.master_port);
  pipe_.send(Serving{.store = store_->endpoint().to_string(), .master_port = port});
}

void Agent::start(const Start& start) {
  if (!secret_ || ranks_) throw Error(ErrorCode::corrupt_data, "a start without a plan");
  local_.facts.store = start.store;
  local_.facts.master_address = start.master_address;
  local_.facts.master_port = start.master_port;
  const bool has_rank_0 = local_.places.front().rank == 0;
  if (shown_) shown_->expect(local_.places, local_.facts.ranks);
  ranks_.emplace(local_, *secret_, output());
  ranks_->start(has_rank_0 ? input_.open() : UniqueFd());
  if (store_) ranks_->serve_store(std::move(*std::exchange(store_, std::nullopt)), *secret_);
  const std::vector<pid_t> pids = ranks_->pids();
  pipe_.send(Started{.pids = {pids.begin(), pids.end()}});
}

void Agent::tell_stragglers() {
  agents::Stragglers message;
  for (const Straggler& one : ranks_->stragglers())
    message.left.push_back({.rank = one.rank, .pid = one.pid, .is_stopped = one.is_stopped});
  pipe_.send(message);
}

void Agent::finish(const Finish& finish) {
  wants_record_ = finish.wants_record != 0;
  if (ranks_) return ranks_->finish(milliseconds(finish.grace_ms));
  pipe_.send(Finished{});
  is_done_ = true;
}

// From whoever looks after this host, a batch system for one; the launcher's own come as messages.
void Agent::take_orders() {
  guard_gone_ = !guard_.take_orders([&](int signal) {
    if (ranks_) ranks_->signal(signal, signal != SIGUSR1 && signal != SIGUSR2, std::nullopt);
    if (stop_.take(signal)) stopped_ = stopped_.earlier_of(Deadline::after(stop_grace));
  });
}

void Agent::report() {
  if (const std::size_t room = input_.take_room(); room > 0)
    pipe_.send(InputRoom{.bytes = static_cast<std::uint32_t>(room)});
  if (!ranks_ || is_done_) return;
  for (const Ending& ending : ranks_->take_endings()) {
    pipe_.send(Ended{.rank = ending.rank,
                     .pid = ending.pid,
                     .wait_status = ending.wait_status,
                     .said_goodbye = ending.said_goodbye,
                     .worlds = ending.worlds,
                     .was_stopped = ending.was_stopped,
                     .why_killed = ending.why_killed,
                     .lost = ending.lost,
                     .user_ns = ending.costs.user_ns,
                     .system_ns = ending.costs.system_ns,
                     .most_resident_bytes = ending.costs.most_resident_bytes});
    if (ending.failed()) failed_.push_back(ending.rank);
  }
  for (const Life& life : ranks_->take_arrivals()) {
    Arrived message;
    message.rank = life.rank;
    message.incarnation = life.incarnation;
    pipe_.send(message);
  }
  // The next world has none yet.
  const auto cause = ranks_->first_cause().value_or(FirstCause::Cause{});
  if (cause.text != cause_told_) {
    Cause message;
    message.code = cause.code;
    message.culprit = cause.culprit;
    message.reporter = cause.reporter;
    message.text = cause.text;
    message.several = cause.several;
    pipe_.send(message);
    cause_told_ = cause.text;
  }
  if (ranks_->is_finished()) {
    send_record();
    send_timeline(pipe_, ranks_->take_timeline());
    if (shown_) send_last_lines();
    pipe_.send(Finished{.left_behind = ranks_->left_behind()});
    is_done_ = true;
  }
}

void Agent::send_record() {
  const auto record = wants_record_ ? ranks_->record() : std::nullopt;
  const std::string text = record ? record->to_text() : "";
  for (std::size_t at = 0; at < text.size(); at += record_piece_bytes)
    pipe_.send(RecordPart{.text = text.substr(at, record_piece_bytes)});
}

void Agent::send_last_lines() {
  for (const int rank : failed_) pipe_.send(LastLines{.rank = rank, .lines = shown_->last_lines(rank)});
}

}  // namespace

AgentEnd serve_launcher(GuardLine& guard, MessagePipe pipe, const RunOptions* own) {
  return Agent(guard, std::move(pipe), own).run();
}

int run_agent() {
  const GuardLimits limits{.stopped = 2 * stop_grace,
                           .hurried = stop_grace,
                           .lifeline = STDIN_FILENO,
                           .job = "the agent on this host"};
  const auto serve = [](GuardLine line) {
    return serve_launcher(line, {copy_of(STDIN_FILENO), copy_of(STDOUT_FILENO)}, nullptr).is_done ? 0 : 1;
  };
  return run_guarded(serve, limits);
}

}  // namespace lockstep::launch::agents

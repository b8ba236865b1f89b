#include "lockstep/launch/agents/gather.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/words.h"
#include "lockstep/launch/agents/candidates.h"
#include "lockstep/launch/agents/connection.h"
#include "lockstep/launch/agents/host_tree.h"
#include "lockstep/launch/agents/node_door.h"
#include "lockstep/launch/agents/remote_ranks.h"
#include "lockstep/launch/agents/wire.h"
#include "lockstep/launch/environment.h"
#include "lockstep/launch/hosts/this_host.h"
#include "lockstep/launch/stop_orders.h"
#include "lockstep/trace/clock.h"

namespace lockstep::launch::agents {
namespace {

constexpr std::size_t most_named = 8;                // hosts in a line
constexpr std::chrono::seconds time_to_hear_why{2};  // why nothing starts, for those who have come

std::string this_folder() {
  std::error_code error;
  const auto folder = std::filesystem::current_path(error);
  if (!error) return folder.string();
  throw Error(ErrorCode::system, "the folder that this is called in is no longer there (" + error.message() +
                                     "); pass --wdir DIR that every host has");
}

std::optional<NodeDoor> open_door(const NodeOptions& nodes) try {
  return std::optional<NodeDoor>(std::in_place, nodes);
} catch (const Error& error) {
  throw PlaceTaken(error);
}

class Gathering {
 public:
  Gathering(const RunOptions& options, const Attempt& attempt, GuardLine& guard, RankOutput& output)
      : options_(options), attempt_(attempt), guard_(guard), output_(output) {}

  Job::Hosts run();

 private:
  using Answer = std::function<bool(const Candidate&)>;

  void connect();
  void await_agents();
  void meet_nodes();
  void let_in(NodeDoor& door);
  /// Of agents on this machine: the same as ours.
  void know_own_clock();
  void send_plans();
  void choose_address();
  void start_ranks();
  /// Until each candidate has given this answer; throws CannotGather where one cannot.
  void await(const std::string& what, const Answer& is_there);
  void watch(PollSet& poll);
  void take(Candidate& candidate, const Message& message);
  void take_orders();
  void note_end(Candidate& candidate);
  void require_not_told_to_end();
  [[noreturn]] void give_up_with_table() {
    give_up(exit_code_of(candidates_), table_of_problems(candidates_));
  }
  /// Tells those who have come, too.
  [[noreturn]] void give_up(int exit_code, const std::string& why);
  std::vector<std::int32_t> ranks_of_hosts() const;
  std::vector<RoleFields> role_fields() const;

  const RunOptions& options_;
  const Attempt& attempt_;
  GuardLine& guard_;
  RankOutput& output_;
  const Secret secret_ = options_.nodes ? options_.nodes->secret.value() : Secret::random();
  Deadline deadline_ = Deadline::after(options_.remote.start_timeout);
  StopOrders stop_;
  bool guard_gone_ = false;
  Candidates candidates_;
  std::optional<SharedConnections> shared_;
  Start start_;
};

Job::Hosts Gathering::run() {
  connect();
  await_agents();
  shared_.reset();
  merge_machines(candidates_);
  know_own_clock();
  send_plans();
  await("looked at the program", [](const Candidate& candidate) { return candidate.planned.has_value(); });
  choose_address();
  await("opened the job's store", [&](const Candidate& candidate) {
    return &candidate != &candidates_.front() || candidate.serving.has_value();
  });
  start_ranks();
  await("started its ranks", [](const Candidate& candidate) { return candidate.started.has_value(); });
  Job::Hosts hosts;
  int rank = 0;
  for (Candidate& candidate : candidates_) {
    RemoteRanks::Parts parts{.connection = std::move(candidate.connection),
                             .pids = candidate.started->pids,
                             .clock_ahead_ns = candidate.clock_ahead_ns,
                             .wants_record = wants_record(options_),
                             .early = std::move(candidate.after_start),
                             .limits = options_.stragglers};
    for (int i = 0; i < candidate.host.slots; ++i) parts.ranks.push_back(rank++);
    if (hosts.empty()) parts.input.emplace(STDIN_FILENO);
    parts.pids.resize(parts.ranks.size());
    hosts.push_back(std::make_unique<RemoteRanks>(std::move(parts), output_));
  }
  return hosts;
}

void Gathering::connect() {
  if (options_.nodes) return meet_nodes();
  const std::size_t direct = directly_reached(options_.hosts.size(), options_.remote.tree_width);
  if (direct < options_.hosts.size()) shared_.emplace();
  const auto shells =
      shells_for(options_.remote, options_.hosts, shared_ ? shared_->folder() : std::filesystem::path());
  for (std::size_t i = 0; i < shells.size(); ++i) {
    if (i == direct) await_agents();
    candidates_.push_back({.host = options_.hosts[i]});
    candidates_.back().connection =
        std::make_unique<Connection>(options_.hosts[i].name, shells[i], guard_.signal_mask);
  }
}

void Gathering::await_agents() {
  await("started its agent", [](const Candidate& candidate) { return candidate.hello.has_value(); });
}

void Gathering::meet_nodes() {
  const NodeOptions& nodes = *options_.nodes;
  std::optional<NodeDoor> door = open_door(nodes);
  candidates_.push_back({.host = {base::host_name(), options_.ranks}, .node_rank = 0});
  candidates_.back().connection =
      std::make_unique<Connection>("this host", shell_for({}, "localhost"), guard_.signal_mask);
  Deadline last_call = Deadline::never();
  const auto count = [&] { return static_cast<int>(candidates_.size()); };
  while (count() < nodes.most && !last_call.expired() && !deadline_.expired()) {
    PollSet poll;
    door->watch(poll);
    watch(poll);
    poll.wait(deadline_.earlier_of(last_call).earlier_of(door->wake_at()));
    require_not_told_to_end();
    std::erase_if(candidates_, [](const Candidate& candidate) {
      return candidate.connection->has_come() && candidate.connection->is_over();
    });
    let_in(*door);
    if (have_problems(candidates_)) give_up_with_table();
    const bool is_enough = count() >= nodes.least;
    if (is_enough == last_call.is_never())
      last_call = is_enough ? Deadline::after(nodes.last_call) : Deadline::never();
  }
  if (count() < nodes.least) {
    give_up(
        1, fmt::format(
               "{} of {} came to {} within {} (--start-timeout): start `lockstep run` on each, with the same "
               "--nnodes, --rdzv-endpoint or --master-addr and --master-port, and --rdzv-id; --node-rank 0, "
               "if it is given, is one host's alone",
               count(), base::counted(nodes.least, "host"), nodes.meeting.to_string(),
               base::exact_duration(options_.remote.start_timeout)));
  }
  std::ranges::stable_sort(candidates_, {}, [](const Candidate& candidate) {
    return candidate.node_rank < 0 ? std::numeric_limits<int>::max() : candidate.node_rank;
  });
  deadline_ = Deadline::after(options_.remote.start_timeout);
}

void Gathering::let_in(NodeDoor& door) {
  const auto is_taken = [&](int rank) {
    return std::ranges::find(candidates_, rank, &Candidate::node_rank) != candidates_.end();
  };
  for (const NodeDoor::Arrival& arrival : door.take(is_taken)) {
    Candidate candidate{.host = {.name = arrival.socket.peer()}, .node_rank = arrival.node_rank};
    candidate.connection = std::make_unique<Connection>(candidate.host.name, arrival.socket);
    candidates_.push_back(std::move(candidate));
  }
}

void Gathering::watch(PollSet& poll) {
  poll.watch(guard_.orders.get(), POLLIN, [this] { take_orders(); });
  for (Candidate& candidate : candidates_) {
    candidate.connection->watch(poll,
                                [this, &candidate](const Message& message) { take(candidate, message); });
  }
  output_.watch(poll);
}

void Gathering::require_not_told_to_end() {
  if (stop_.first() != 0 || guard_gone_)
    give_up(128 + stop_.first(), "ended by " + base::signal_name(stop_.first()));
}

void Gathering::give_up(int exit_code, const std::string& why) {
  const auto is_told = [](const Candidate& candidate) {
    return !candidate.connection->has_come() || candidate.connection->is_over();
  };
  for (Candidate& candidate : candidates_) {
    if (!is_told(candidate))
      candidate.connection->pipe().send(
          Conclusion{.exit_code = exit_code, .summary = "lockstep run: " + why + "\n"});
  }
  const Deadline limit = Deadline::after(time_to_hear_why);
  while (!std::ranges::all_of(candidates_, is_told) && !limit.expired() && !guard_gone_) {
    PollSet poll;
    watch(poll);
    poll.wait(limit);
  }
  throw CannotGather(exit_code, why);
}

void Gathering::know_own_clock() {
  const auto local = std::ranges::find_if(
      candidates_, [](const Candidate& candidate) { return is_this_host(candidate.host.name); });
  if (local == candidates_.end()) return;
  const std::string here = local->hello->machine;
  for (Candidate& candidate : candidates_) {
    if (candidate.hello->machine == here) candidate.clock_ahead_ns = 0;
  }
}

// By which all reach the first host.
void Gathering::choose_address() {
  const Candidate& first = candidates_.front();
  const std::string name =
      options_.nodes ? options_.nodes->meeting.host : first.host.name.substr(first.host.name.find('@') + 1);
  const std::vector<std::string> addresses = addresses_to_try(candidates_, name);
  Probe probe;
  for (const std::string& address : addresses)
    probe.endpoints.push_back(Endpoint::tcp(address, first.planned->door).to_string());
  if (candidates_.size() > 1) {
    for (Candidate& candidate : std::span(candidates_).subspan(1)) candidate.connection->pipe().send(probe);
    await("tried to reach " + first.host.name,
          [&](const Candidate& candidate) { return &candidate == &first || candidate.probed.has_value(); });
  }
  const auto reached = address_reached(candidates_, addresses);
  if (!reached) give_up_with_table();
  start_.master_address = *reached;
  first.connection->pipe().send(
      Serve{.address = *reached, .master_port = static_cast<std::uint16_t>(options_.master_port)});
}

void Gathering::await(const std::string& what, const Answer& is_there) {
  const auto is_waited_for = [&](const Candidate& candidate) {
    return candidate.problem.empty() && !is_there(candidate);
  };
  while (std::ranges::any_of(candidates_, is_waited_for) && !deadline_.expired()) {
    PollSet poll;
    watch(poll);
    poll.wait(deadline_);
    require_not_told_to_end();
    for (Candidate& candidate : candidates_) note_end(candidate);
  }
  for (Candidate& candidate : candidates_) {
    if (is_waited_for(candidate)) {
      candidate.problem = fmt::format("has not {} within {} (--start-timeout)", what,
                                      base::exact_duration(options_.remote.start_timeout));
    }
  }
  if (have_problems(candidates_)) give_up_with_table();
}

void Gathering::note_end(Candidate& candidate) {
  if (candidate.problem.empty()) {
    candidate.problem = candidate.connection->version_problem();
    if (!candidate.problem.empty() && !candidate.connection->has_come()) candidate.connection->close();
  }
  if (candidate.problem.empty() && candidate.connection->is_over())
    candidate.problem = candidate.connection->explain_end();
}

void Gathering::take(Candidate& candidate, const Message& message) {
  if (candidate.started) return candidate.after_start.push_back(message);  // while others start
  switch (message.kind) {
    case Kind::hello:
      candidate.hello = content_of<Hello>(message);
      candidate.clock_ahead_ns =
          static_cast<std::int64_t>(candidate.hello->clock_ns) - static_cast<std::int64_t>(trace::now_ns());
      if (!candidate.connection->has_come()) return;
      candidate.host = {candidate.hello->host, candidate.hello->slots};
      candidate.connection->name_host(candidate.hello->host);
      if (candidate.hello->least_hosts != options_.nodes->least ||
          candidate.hello->most_hosts != options_.nodes->most) {
        candidate.problem = fmt::format(
            "was started with --nnodes {}:{}, and the launcher that leads with {}:{}: all need the same",
            candidate.hello->least_hosts, candidate.hello->most_hosts, options_.nodes->least,
            options_.nodes->most);
      }
      if (candidate.host.slots < 1 || candidate.host.slots > most_ranks)
        candidate.problem =
            fmt::format("takes {} ranks: 1 to {} are possible", candidate.host.slots, most_ranks);
      return;
    case Kind::planned: candidate.planned = content_of<Planned>(message); return;
    case Kind::probed: candidate.probed = content_of<Probed>(message); return;
    case Kind::serving: candidate.serving = content_of<Serving>(message); return;
    case Kind::started: candidate.started = content_of<Started>(message); return;
    case Kind::refused: {
      const auto refused = content_of<Refused>(message);
      candidate.problem = refused.why;
      candidate.exit_code = refused.exit_code;
      return;
    }
    default:
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("a message of kind {} comes too early", static_cast<int>(message.kind)));
  }
}

void Gathering::take_orders() {
  guard_gone_ = !guard_.take_orders([&](int signal) { (void)stop_.take(signal); });
}

std::vector<std::int32_t> Gathering::ranks_of_hosts() const {
  std::vector<std::int32_t> ranks;
  for (const Candidate& candidate : candidates_) ranks.push_back(candidate.host.slots);
  return ranks;
}

// Launchers that meet have one role, of all their ranks.
std::vector<RoleFields> Gathering::role_fields() const {
  const auto ranks = ranks_of_hosts();
  const int all = std::accumulate(ranks.begin(), ranks.end(), 0);
  std::vector<RoleFields> roles;
  for (const Role& role : roles_of(options_))
    roles.push_back({.name = role.name, .ranks = options_.nodes ? all : role.ranks, .command = role.command});
  return roles;
}

void Gathering::send_plans() {
  std::map<std::string, std::int32_t> on_machine, before;
  for (const Candidate& candidate : candidates_) on_machine[candidate.hello->machine] += candidate.host.slots;
  const RemoteOptions& remote = options_.remote;
  const Plan plan{.ranks_of_hosts = ranks_of_hosts(),
                  .begins = {options_.begins.begin(), options_.begins.end()},
                  .run = attempt_.run,
                  .job = attempt_.job,
                  .previous_job = attempt_.previous_job,
                  .secret = std::string(base::text_of(secret_.bytes())),
                  .roles = role_fields(),
                  .variables = variables_for_others(this_environment(), remote.variables),
                  .folder = remote.folder.empty() ? this_folder() : remote.folder,
                  .pin = static_cast<std::uint8_t>(options_.pin),
                  .restarts = attempt_.restarts,
                  .max_restarts = options_.max_restarts,
                  .keeps_timeline = static_cast<std::uint8_t>(keeps_timeline(options_)),
                  .has_views = static_cast<std::uint8_t>(survives_deaths(options_))};
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    Candidate& candidate = candidates_[i];
    const std::string& machine = candidate.hello->machine;
    Plan its = plan;
    its.host = static_cast<std::int32_t>(i);
    its.host_name = candidate.host.name;
    its.ranks_on_machine = on_machine[machine];
    its.ranks_before_on_machine = std::exchange(before[machine], before[machine] + candidate.host.slots);
    its.opens_door = i == 0 && candidates_.size() > 1 ? 1 : 0;
    its.is_one_of_several_here = std::ranges::count_if(candidates_, [&](const Candidate& other) {
                                   return are_one_machine(candidate, other);
                                 }) > 1;
    if (candidate.connection->has_come()) {  // its own launcher has told it
      its.secret.clear();
      its.roles.clear();
      its.variables.clear();
      its.folder.clear();
    }
    candidate.connection->pipe().send(its);
  }
}

void Gathering::start_ranks() {
  const auto ranks = ranks_of_hosts();
  const auto places = place_ranks({ranks.begin(), ranks.end()});
  std::vector<RankPlace> shown;  // here; those who have come show their own
  std::ranges::copy_if(places, std::back_inserter(shown), [&](const RankPlace& place) {
    return !candidates_[static_cast<std::size_t>(place.host)].connection->has_come();
  });
  output_.expect(shown, static_cast<int>(places.size()));
  start_.store = candidates_.front().serving->store;
  start_.master_port = candidates_.front().serving->master_port;
  std::map<std::string, std::vector<std::string>> hosts_by_placement;
  for (Candidate& candidate : candidates_) {
    hosts_by_placement[candidate.planned->placement].push_back(candidate.host.name);
    candidate.connection->pipe().send(start_);
  }
  for (const auto& [placement, hosts] : hosts_by_placement) {
    if (!placement.empty())
      output_.say(fmt::format("{} ({}{})\n", placement,
                              fmt::join(std::span(hosts).first(std::min(hosts.size(), most_named)), ", "),
                              hosts.size() > most_named ? ", ..." : ""));
  }
}

}  // namespace

Job::Hosts gather(const RunOptions& options, const Attempt& attempt, GuardLine& guard, RankOutput& output) {
  return Gathering(options, attempt, guard, output).run();
}

}  // namespace lockstep::launch::agents

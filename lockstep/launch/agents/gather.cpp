#include "lockstep/launch/agents/gather.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/words.h"
#include "lockstep/group/interface_address.h"
#include "lockstep/launch/agents/connection.h"
#include "lockstep/launch/agents/remote_ranks.h"
#include "lockstep/launch/agents/wire.h"
#include "lockstep/launch/environment.h"
#include "lockstep/launch/hosts/this_host.h"
#include "lockstep/launch/stop_orders.h"
#include "lockstep/trace/clock.h"

namespace lockstep::launch::agents {
namespace {

constexpr std::size_t most_named = 8;  // hosts in a line

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

/// One host on its way to taking part.
struct Guest {
  Host host;
  std::unique_ptr<Connection> connection = {};
  std::optional<Hello> hello = {};
  std::int64_t clock_ahead_ns = 0;
  std::optional<Planned> planned = {};
  std::optional<Probed> probed = {};
  std::optional<Serving> serving = {};
  std::optional<Started> started = {};
  std::vector<Message> after_start = {};
  std::string problem = {};
  int exit_code = 1;
};

class Gathering {
 public:
  Gathering(const RunOptions& options, std::string job, GuardLine& guard, RankOutput& output)
      : options_(options), job_(std::move(job)), guard_(guard), output_(output) {}

  Job::Hosts run();

 private:
  using Answer = std::function<bool(const Guest&)>;

  RemoteShell shell_for(const std::string& host) const;
  void connect();
  void merge_machines();
  void send_plans();
  void choose_address();
  void start_ranks();
  /// Until each guest has given this answer; throws CannotGather where one cannot.
  void await(const std::string& what, const Answer& is_there);
  void take(Guest& guest, const Message& message);
  void take_orders();
  void note_end(Guest& guest);
  [[noreturn]] void throw_table();
  std::vector<std::int32_t> ranks_of_hosts() const;

  const RunOptions& options_;
  const std::string job_;
  GuardLine& guard_;
  RankOutput& output_;
  const Secret secret_ = Secret::random();
  const Deadline deadline_ = Deadline::after(options_.remote.start_timeout);
  StopOrders stop_;
  bool guard_gone_ = false;
  std::vector<Guest> guests_;
  Start start_;
};

Job::Hosts Gathering::run() {
  connect();
  await("started its agent", [](const Guest& guest) { return guest.hello.has_value(); });
  merge_machines();
  send_plans();
  await("looked at the program", [](const Guest& guest) { return guest.planned.has_value(); });
  choose_address();
  await("opened the job's store",
        [&](const Guest& guest) { return &guest != &guests_.front() || guest.serving.has_value(); });
  start_ranks();
  await("started its ranks", [](const Guest& guest) { return guest.started.has_value(); });
  Job::Hosts hosts;
  int rank = 0;
  for (Guest& guest : guests_) {
    RemoteRanks::Parts parts{.connection = std::move(guest.connection),
                             .pids = guest.started->pids,
                             .clock_ahead_ns = guest.clock_ahead_ns,
                             .wants_record = !options_.record_dir.empty(),
                             .early = std::move(guest.after_start)};
    for (int i = 0; i < guest.host.slots; ++i) parts.ranks.push_back(rank++);
    if (hosts.empty()) parts.input.emplace(STDIN_FILENO);
    parts.pids.resize(parts.ranks.size());
    hosts.push_back(std::make_unique<RemoteRanks>(std::move(parts), output_));
  }
  return hosts;
}

RemoteShell Gathering::shell_for(const std::string& host) const {
  const RemoteOptions& remote = options_.remote;
  const bool is_here = remote.shell.empty() && !remote.by_srun && is_this_host(host);
  RemoteShell shell{.agent = remote.agent.empty() || is_here ? own_path() : remote.agent};
  if (is_here) return shell;
  if (remote.by_srun) {
    shell.kind = RemoteShell::Kind::srun;
    shell.command = {"srun",         "--nodes=1",  "--ntasks=1",     "--overlap",
                     "--unbuffered", "--mpi=none", "--cpu-bind=none"};
    return shell;
  }
  shell.kind = RemoteShell::Kind::ssh;
  shell.command = remote.shell.empty() ? std::vector<std::string>{"ssh"} : remote.shell;
  if (std::filesystem::path(shell.command.front()).filename() == "ssh") {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(remote.start_timeout).count();
    for (const std::string& word : {std::string("-T"), std::string("-x"), std::string("-oBatchMode=yes"),
                                    fmt::format("-oConnectTimeout={}", seconds)})
      shell.command.push_back(word);
  }
  return shell;
}

void Gathering::connect() {
  for (const Host& host : options_.hosts) {
    guests_.push_back({.host = host});
    guests_.back().connection =
        std::make_unique<Connection>(host.name, shell_for(host.name), guard_.signal_mask);
  }
}

void Gathering::await(const std::string& what, const Answer& is_there) {
  const auto is_waited_for = [&](const Guest& guest) { return guest.problem.empty() && !is_there(guest); };
  while (std::ranges::any_of(guests_, is_waited_for) && !deadline_.expired()) {
    PollSet poll;
    poll.watch(guard_.orders.get(), POLLIN, [this] { take_orders(); });
    for (Guest& guest : guests_) {
      guest.connection->watch(poll, [this, &guest](const Message& message) { take(guest, message); });
    }
    output_.watch(poll);
    poll.wait(deadline_);
    if (stop_.first() != 0 || guard_gone_)
      throw CannotGather(128 + stop_.first(), "ended by " + base::signal_name(stop_.first()));
    for (Guest& guest : guests_) note_end(guest);
  }
  for (Guest& guest : guests_) {
    if (is_waited_for(guest)) {
      guest.problem = fmt::format("has not {} within {} (--start-timeout)", what,
                                  base::exact_duration(options_.remote.start_timeout));
    }
  }
  if (std::ranges::any_of(guests_, [](const Guest& guest) { return !guest.problem.empty(); })) throw_table();
}

void Gathering::note_end(Guest& guest) {
  const std::string& version = guest.connection->version();
  if (guest.problem.empty() && !version.empty() && version != LOCKSTEP_VERSION) {
    guest.problem =
        fmt::format("has Lockstep {}, this host has {}: all need the same", version, LOCKSTEP_VERSION);
    guest.connection->close();
  }
  if (guest.problem.empty() && guest.connection->is_over()) guest.problem = guest.connection->explain_end();
}

void Gathering::take(Guest& guest, const Message& message) {
  if (guest.started) return guest.after_start.push_back(message);  // while others start
  switch (message.kind) {
    case Kind::hello:
      guest.hello = content_of<Hello>(message);
      guest.clock_ahead_ns =
          static_cast<std::int64_t>(guest.hello->clock_ns) - static_cast<std::int64_t>(trace::now_ns());
      return;
    case Kind::planned: guest.planned = content_of<Planned>(message); return;
    case Kind::probed: guest.probed = content_of<Probed>(message); return;
    case Kind::serving: guest.serving = content_of<Serving>(message); return;
    case Kind::started: guest.started = content_of<Started>(message); return;
    case Kind::refused: {
      const auto refused = content_of<Refused>(message);
      guest.problem = refused.why;
      guest.exit_code = refused.exit_code;
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

void Gathering::throw_table() {
  std::size_t widest = 0, failed = 0;
  int exit_code = 1;
  for (const Guest& guest : guests_) {
    if (guest.problem.empty()) continue;
    if (failed++ == 0) exit_code = guest.exit_code;
    widest = std::max(widest, guest.host.name.size());
  }
  std::string table = failed == 1 && guests_.size() == 1
                          ? std::string("the host cannot take part:")
                          : fmt::format("{} of {} cannot take part:", failed,
                                        base::counted(static_cast<int>(guests_.size()), "host"));
  for (const Guest& guest : guests_) {
    if (!guest.problem.empty()) table += fmt::format("\n  {:{}}  {}", guest.host.name, widest, guest.problem);
  }
  throw CannotGather(exit_code, table);
}

// Two names of one machine would give two agents the same shared memory to manage.
void Gathering::merge_machines() {
  std::vector<Guest> merged;
  for (Guest& guest : guests_) {
    const auto same = std::ranges::find_if(merged, [&](const Guest& other) {
      return other.hello->machine == guest.hello->machine && other.hello->network == guest.hello->network;
    });
    if (same == merged.end()) {
      merged.push_back(std::move(guest));
    } else {
      same->host.slots += guest.host.slots;
      guest.connection->close();
    }
  }
  guests_ = std::move(merged);
  const std::string here = [&] {
    const auto local =
        std::ranges::find_if(guests_, [&](const Guest& guest) { return is_this_host(guest.host.name); });
    return local == guests_.end() ? std::string() : local->hello->machine;
  }();
  for (Guest& guest : guests_) {
    if (guest.hello->machine == here) guest.clock_ahead_ns = 0;  // it is the same clock
  }
}

std::vector<std::int32_t> Gathering::ranks_of_hosts() const {
  std::vector<std::int32_t> ranks;
  for (const Guest& guest : guests_) ranks.push_back(guest.host.slots);
  return ranks;
}

void Gathering::send_plans() {
  std::map<std::string, std::int32_t> on_machine, before;
  for (const Guest& guest : guests_) on_machine[guest.hello->machine] += guest.host.slots;
  const RemoteOptions& remote = options_.remote;
  Plan plan{.ranks_of_hosts = ranks_of_hosts(),
            .job = job_,
            .secret = std::string(base::text_of(secret_.bytes())),
            .command = options_.command,
            .variables = variables_for_others(this_environment(), remote.variables),
            .folder = remote.folder.empty() ? std::filesystem::current_path().string() : remote.folder,
            .pin = static_cast<std::uint8_t>(options_.pin)};
  for (Guest& guest : guests_) {
    const std::string& machine = guest.hello->machine;
    plan.host_name = guest.host.name;
    plan.ranks_on_machine = on_machine[machine];
    plan.ranks_before_on_machine = std::exchange(before[machine], before[machine] + guest.host.slots);
    plan.opens_door = plan.host == 0 && guests_.size() > 1 ? 1 : 0;
    guest.connection->pipe().send(plan);
    ++plan.host;
  }
}

// The one by which all reach the first host: as the user names it, if that is an address of its own, else any.
void Gathering::choose_address() {
  const Guest& first = guests_.front();
  const std::string name = first.host.name.substr(first.host.name.find('@') + 1);
  std::vector<std::string> addresses = first.hello->addresses;
  const std::vector<std::string> named = addresses_of(name);
  std::stable_partition(addresses.begin(), addresses.end(), [&](const std::string& address) {
    return std::ranges::find(named, address) != named.end();
  });
  if (guests_.size() == 1) addresses = {"127.0.0.1"};
  Probe probe;
  for (const std::string& address : addresses)
    probe.endpoints.push_back(Endpoint::tcp(address, first.planned->door).to_string());
  if (guests_.size() > 1) {
    for (Guest& guest : std::span(guests_).subspan(1)) guest.connection->pipe().send(probe);
    await("tried to reach " + first.host.name,
          [&](const Guest& guest) { return &guest == &first || guest.probed.has_value(); });
  }
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto is_reached = [&](const Guest& guest) {
      return &guest == &first || (i < guest.probed->problems.size() && guest.probed->problems[i].empty());
    };
    if (!std::ranges::all_of(guests_, is_reached)) continue;
    start_.master_address = addresses[i];
    return guests_.front().connection->pipe().send(
        Serve{.address = addresses[i], .master_port = static_cast<std::uint16_t>(options_.master_port)});
  }
  for (Guest& guest : guests_) {
    if (&guest == &first) {
      if (addresses.empty()) guest.problem = "has no network interface with an address";
      continue;
    }
    std::string tried;
    for (const std::string& problem : guest.probed->problems) tried += (tried.empty() ? "" : "; ") + problem;
    const bool reaches_none = std::ranges::none_of(guest.probed->problems, &std::string::empty);
    if (reaches_none && !addresses.empty())
      guest.problem = "does not reach " + first.host.name + ": " + tried;
  }
  if (std::ranges::all_of(guests_, [](const Guest& guest) { return guest.problem.empty(); }))
    guests_.front().problem = "has no address that all other hosts reach; each reaches another of " +
                              base::counted(static_cast<int>(addresses.size()), "address", "addresses");
  throw_table();
}

void Gathering::start_ranks() {
  start_.store = guests_.front().serving->store;
  start_.master_port = guests_.front().serving->master_port;
  std::map<std::string, std::vector<std::string>> hosts_by_placement;
  for (Guest& guest : guests_) {
    hosts_by_placement[guest.planned->placement].push_back(guest.host.name);
    guest.connection->pipe().send(start_);
  }
  for (const auto& [placement, hosts] : hosts_by_placement) {
    if (!placement.empty())
      output_.say(fmt::format("{} ({}{})\n", placement,
                              fmt::join(std::span(hosts).first(std::min(hosts.size(), most_named)), ", "),
                              hosts.size() > most_named ? ", ..." : ""));
  }
}

}  // namespace

Job::Hosts gather(const RunOptions& options, const std::string& job, GuardLine& guard, RankOutput& output) {
  return Gathering(options, job, guard, output).run();
}

}  // namespace lockstep::launch::agents

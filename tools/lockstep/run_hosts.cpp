#include "run_hosts.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/base/split.h"
#include "lockstep/base/words.h"
#include "lockstep/group/launchers.h"
#include "lockstep/launch/hosts/allocation.h"
#include "lockstep/launch/hosts/discovery.h"
#include "lockstep/launch/hosts/host_list.h"
#include "lockstep/launch/hosts/this_host.h"
#include "lockstep/topology/gpus.h"
#include "lockstep/topology/topology.h"
#include "named_hosts.h"

namespace {

using lockstep::throw_invalid_argument;
using lockstep::launch::Host;
using lockstep::launch::NodeOptions;
using lockstep::launch::RunOptions;

constexpr std::uint16_t port_of_backend = 29400;  // torchrun's
constexpr std::uint16_t port_of_master = 29500;

int whole_number(const std::string& option, const std::string& text, int least, int most) {
  return static_cast<int>(lockstep::env::parse_integer(option, text, least, most));
}

std::optional<int> wished_ranks(const RunFlags& flags, int most) {
  if (flags.ranks.empty()) return std::nullopt;
  return whole_number("-np", flags.ranks, 1, most);
}

/// --nproc-per-node; nullopt: it does not say.
std::optional<int> ranks_per_host(const RunFlags& flags) {
  const std::string& text = flags.ranks_per_host;
  if (text.empty()) return std::nullopt;
  if (!flags.ranks.empty())
    throw_invalid_argument(
        "-np says how many ranks there are in all, --nproc-per-node how many a host has; pass one of them");
  if (text == "gpu" || text == "auto") {
    if (const int gpus = lockstep::topology::visible_gpus(); gpus > 0) return gpus;
    if (text == "gpu")
      throw_invalid_argument(
          "--nproc-per-node gpu: there is no GPU here, or CUDA_VISIBLE_DEVICES hides it; say N, cpu or auto");
  }
  if (text == "cpu" || text == "auto") return lockstep::topology::available_cores();
  return whole_number("--nproc-per-node", text, 1, lockstep::launch::most_ranks);
}

/// --max-np, where -np, at least, are `wished`, and the hosts have `slots`.
int ranks_up_to(const RunFlags& flags, int wished, int slots) {
  const int most = whole_number("--max-np", flags.most_ranks, 1, lockstep::launch::most_slots);
  if (most < wished)
    throw_invalid_argument(fmt::format("--max-np {} is less than the {} ranks that -np says", most, wished));
  return std::max(wished, std::min(most, slots));
}

/// The job has places for --max-np ranks: a slot each of those that a script has found, and what is left of them by turns on all hosts,
/// which may come to have more. It begins with -np of them.
void choose_discovered(const RunFlags& flags, RunOptions& options) {
  using lockstep::base::counted;
  if (!flags.hosts.empty() || !flags.hostfile.empty() || flags.standalone || !flags.nodes.empty() ||
      !flags.ranks_per_host.empty())
    throw_invalid_argument(
        "--host-discovery-script says which hosts there are and what each takes; leave -H, --hostfile, "
        "--standalone, --nnodes and "
        "--nproc-per-node out");
  if (flags.least_ranks.empty())
    throw_invalid_argument(
        "--host-discovery-script needs --min-np N: with how many ranks the job goes on when hosts go away");
  lockstep::launch::DiscoveryOptions discovery{.script = flags.discovery_script};
  if (!flags.slots_per_host.empty())
    discovery.slots = whole_number("--slots-per-host", flags.slots_per_host, 1, lockstep::launch::most_slots);
  std::vector<Host> hosts = discover(discovery);
  std::erase_if(hosts, [](const Host& host) { return host.slots == 0; });
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  const int least = whole_number("--min-np", flags.least_ranks, 1, lockstep::launch::most_ranks);
  const int wished = wished_ranks(flags, lockstep::launch::most_ranks).value_or(std::max(slots, least));
  const int begins = std::min(wished, slots);
  if (begins < least) {
    throw_invalid_argument(fmt::format(
        "--host-discovery-script {} has found {} ({}), and the job needs {} (--min-np)", discovery.script,
        counted(slots, "slot"), hosts.empty() ? "no host" : to_string(hosts), least));
  }
  int most = std::max(slots, wished);
  if (!flags.most_ranks.empty())
    most = whole_number("--max-np", flags.most_ranks, 1, lockstep::launch::most_ranks);
  if (most < wished)
    throw_invalid_argument(fmt::format("--max-np {} is less than the {} ranks that -np says", most, wished));
  if (most < slots) hosts = share_out(most, hosts);
  const std::vector<Host> first = share_out(begins, hosts);
  for (std::size_t i = 0; i < hosts.size(); ++i)
    options.begins.push_back(i < first.size() ? first[i].slots : 0);
  for (int extra = 0; slots + extra < most; ++extra)
    ++hosts[static_cast<std::size_t>(extra) % hosts.size()].slots;
  options.ranks = most;
  options.hosts = std::move(hosts);
  options.discovery = std::move(discovery);
}

/// --nnodes.
std::pair<int, int> node_counts(const RunFlags& flags) {
  if (flags.nodes.empty()) return {1, 1};
  const auto parts = lockstep::base::split(flags.nodes, ':');
  if (parts.size() > 2) throw_invalid_argument("--nnodes=\"" + flags.nodes + "\" is neither N nor MIN:MAX");
  const int least = whole_number("--nnodes", parts.front(), 1, lockstep::launch::most_hosts);
  const int most = whole_number("--nnodes", parts.back(), 1, lockstep::launch::most_hosts);
  if (most < least) throw_invalid_argument("--nnodes=" + flags.nodes + " has more at least than at most");
  return {least, most};
}

/// --rdzv-endpoint, or --master-addr and --master-port.
lockstep::Endpoint meeting_of(const RunFlags& flags) {
  using lockstep::Endpoint;
  if (!flags.meeting.empty()) {
    const std::string& text = flags.meeting;
    const bool has_port = text.find(':') != std::string::npos && text.back() != ']';
    return Endpoint::parse("tcp:" + (has_port ? text : fmt::format("{}:{}", text, port_of_backend)));
  }
  if (flags.master_address.empty()) {
    throw_invalid_argument(
        "launchers of several hosts (--nnodes) meet at one of them: pass --rdzv-endpoint HOST[:PORT], or "
        "--master-addr HOST, "
        "the same on all; or start from one host by ssh: -H HOST:SLOTS,...");
  }
  const int port =
      flags.master_port.empty() ? port_of_master : whole_number("--master-port", flags.master_port, 1, 65535);
  return Endpoint::tcp(flags.master_address, static_cast<std::uint16_t>(port));
}

bool yes_or_no(const std::string& setting, std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (text == "1" || text == "true" || text == "yes" || text == "t" || text == "y") return true;
  if (text == "0" || text == "false" || text == "no" || text == "f" || text == "n") return false;
  throw_invalid_argument(setting + "=" + text + " is neither true nor false");
}

void take_settings(const RunFlags& flags, NodeOptions& nodes, RunOptions& options) {
  if (flags.meeting_settings.empty()) return;
  for (const std::string& entry : lockstep::base::split(flags.meeting_settings, ',')) {
    const std::size_t end = std::min(entry.find('='), entry.size());
    const std::string name = entry.substr(0, end);
    const std::string value = end < entry.size() ? entry.substr(end + 1) : "";
    if (name == "is_host") {
      nodes.leads = yes_or_no("--rdzv-conf is_host", value);
      nodes.may_follow = false;
    } else if (name == "timeout" || name == "join_timeout") {
      if (flags.start_timeout.empty())
        options.remote.start_timeout = milliseconds_of("--rdzv-conf " + name, value);
    } else if (name == "last_call_timeout") {
      nodes.last_call = milliseconds_of("--rdzv-conf " + name, value);
    } else {
      throw_invalid_argument(
          fmt::format("--rdzv-conf \"{}\" is none of is_host=BOOL, timeout=SECONDS, join_timeout=SECONDS and "
                      "last_call_timeout=SECONDS",
                      entry));
    }
  }
}

void require_backend(const std::string& backend) {
  if (backend.empty() || backend == "static" || backend == "c10d") return;
  throw_invalid_argument(
      "--rdzv-backend " + backend +
      ": launchers meet at one of themselves; leave it out, or pass static or c10d, with --rdzv-endpoint "
      "HOST[:PORT] of one of the hosts");
}

/// Launchers on several hosts, none of which starts the others.
void choose_nodes(const RunFlags& flags, std::pair<int, int> counts, RunOptions& options) {
  const auto refuse = [](const std::string& option, const std::string& why) {
    throw_invalid_argument("--nnodes and " + option + why);
  };
  if (!flags.hosts.empty() || !flags.hostfile.empty())
    refuse("-H or --hostfile",
           " are two ways to several hosts: with the latter this launcher starts the ranks of all");
  if (flags.standalone) refuse("--standalone", ", which means this host alone, exclude one another");
  if (!flags.ranks.empty()) refuse("-np", ": say by --nproc-per-node how many ranks this host has");
  NodeOptions nodes{.least = counts.first, .most = counts.second, .meeting = meeting_of(flags)};
  nodes.id = flags.run_id.empty() ? "none" : flags.run_id;
  if (!flags.node_rank.empty()) {
    nodes.rank = whole_number("--node-rank", flags.node_rank, 0, nodes.most - 1);
    nodes.leads = nodes.rank == 0;
  } else {
    nodes.leads = nodes.may_follow = lockstep::launch::is_this_host(nodes.meeting.host);
  }
  if (flags.start_timeout.empty()) options.remote.start_timeout = std::chrono::minutes(10);
  take_settings(flags, nodes, options);
  const auto secret = lockstep::env::text("LOCKSTEP_SECRET_FILE");
  if (!secret) {
    throw_invalid_argument(
        "launchers of several hosts need a secret to know each other: put the same 32 random bytes into a "
        "file of mode 0600 on "
        "every host, and set LOCKSTEP_SECRET_FILE to it; or start from one host by ssh: -H HOST:SLOTS,...");
  }
  nodes.secret = lockstep::Secret::from_file(*secret);
  options.ranks = ranks_per_host(flags).value_or(1);
  options.nodes = std::move(nodes);
}

/// Each of several processes would start all ranks.
void require_one_launcher() {
  std::optional<std::pair<int, std::string>> launched;
  if (const auto found = lockstep::find_launched_rank()) {
    launched.emplace(found->size, found->launcher);
  } else if (lockstep::env::text("TORCHELASTIC_RUN_ID")) {
    if (const auto size = lockstep::env::integer("WORLD_SIZE", 1, lockstep::largest_world))
      launched.emplace(static_cast<int>(*size), "torchrun (TORCHELASTIC_RUN_ID is set)");
  }
  if (!launched || launched->first == 1) return;
  throw_invalid_argument(fmt::format(
      "this is one of {} processes started by {}, each of which would start all ranks; start `lockstep run` "
      "once, without it, or a launcher on each host: --nnodes N --rdzv-endpoint HOST, with "
      "LOCKSTEP_SECRET_FILE",
      launched->first, launched->second));
}

/// Those of an allocation hold unless it is this host alone, and the user says how many ranks.
NamedHosts choose_named(const RunFlags& flags, RunOptions& options) {
  NamedHosts named = named_hosts(flags.hosts, flags.hostfile);
  if (!named.by_allocation) return named;
  options.remote.by_srun = named.by_slurm && options.remote.shell.empty();
  const bool is_only_here =
      named.hosts.size() == 1 && lockstep::launch::is_this_host(named.hosts.front().name);
  if (is_only_here && (!flags.ranks.empty() || !flags.ranks_per_host.empty())) named.hosts.clear();
  return named;
}

}  // namespace

std::chrono::milliseconds milliseconds_of(const std::string& option, const std::string& text) {
  const auto most = std::chrono::hours(24);  // "off" too
  const auto time = std::min<std::chrono::nanoseconds>(lockstep::env::parse_duration(option, text), most);
  return std::chrono::ceil<std::chrono::milliseconds>(time);
}

void choose_hosts(const RunFlags& flags, RunOptions& options) {
  require_backend(flags.meeting_backend);
  if (!flags.discovery_script.empty()) return choose_discovered(flags, options);
  if (!flags.slots_per_host.empty())
    throw_invalid_argument(
        "--slots-per-host is of hosts that --host-discovery-script finds; -H HOST:SLOTS says it otherwise");
  const auto counts = node_counts(flags);
  if (counts.second > 1) return choose_nodes(flags, counts, options);
  require_one_launcher();
  if (!flags.node_rank.empty()) (void)whole_number("--node-rank", flags.node_rank, 0, 0);
  if (flags.standalone && (!flags.hosts.empty() || !flags.hostfile.empty()))
    throw_invalid_argument("--standalone means this host alone; leave -H and --hostfile out");
  NamedHosts named = flags.standalone ? NamedHosts() : choose_named(flags, options);
  std::vector<Host>& hosts = named.hosts;
  const auto per_host = ranks_per_host(flags);
  if (hosts.empty()) {
    auto wished = per_host ? per_host : wished_ranks(flags, lockstep::launch::most_ranks);
    if (!wished && (flags.standalone || !flags.nodes.empty())) wished = 1;  // as torchrun has it
    if (!wished) throw_invalid_argument("how many ranks? Pass -np N");
    options.ranks = *wished;
    if (!flags.most_ranks.empty()) options.ranks = ranks_up_to(flags, *wished, *wished);
    return;
  }
  if (per_host) {
    for (Host& host : hosts) host.slots = *per_host;
    named.has_slots = true;
  }
  auto wished = wished_ranks(flags, lockstep::launch::most_slots);
  if (!wished && !named.has_slots) throw_invalid_argument("how many ranks? Pass -np N");
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  if (!flags.most_ranks.empty()) wished = ranks_up_to(flags, wished.value_or(1), slots);
  options.ranks = wished.value_or(slots);
  options.hosts = named.has_slots ? share_out(options.ranks, hosts) : share_evenly(options.ranks, hosts);
}

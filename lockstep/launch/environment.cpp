#include "lockstep/launch/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>

namespace lockstep::launch {
namespace {

/// Begin the names of variables that are about this host, this shell, or a place in another job.
constexpr std::array host_variables = {"HOSTNAME",
                                       "HOST=",
                                       "PWD=",
                                       "OLDPWD=",
                                       "SHLVL=",
                                       "_=",
                                       "DISPLAY=",
                                       "XAUTHORITY=",
                                       "SSH_",
                                       "XDG_",
                                       "DBUS_",
                                       "TMPDIR=",
                                       "TMUX",
                                       "STY=",
                                       "WINDOWID=",
                                       "HOME=",
                                       "USER=",
                                       "LOGNAME=",
                                       "SHELL=",
                                       "MAIL=",
                                       "TERM=",
                                       "LS_COLORS=",
                                       "BASH_FUNC_",
                                       "SLURM_",
                                       "PMI_",
                                       "PMIX_",
                                       "OMPI_",
                                       "PRTE_",
                                       "MPI_",
                                       "HYDRA_",
                                       "LOCKSTEP_JOB=",
                                       "LOCKSTEP_STORE=",
                                       "LOCKSTEP_NODE=",
                                       "LOCKSTEP_INCARNATION=",
                                       "LOCKSTEP_CONTROL_FD=",
                                       "LOCKSTEP_SECRET_FD=",
                                       "RANK=",
                                       "WORLD_SIZE=",
                                       "LOCAL_",
                                       "GROUP_",
                                       "ROLE_",
                                       "TORCHELASTIC_",
                                       "MASTER_",
                                       "HOROVOD_RANK=",
                                       "HOROVOD_SIZE=",
                                       "HOROVOD_LOCAL_",
                                       "HOROVOD_CROSS_"};
/// Those of them that a rank's share of a host depends on.
constexpr std::array sent_all_the_same = {"SLURM_CPUS_PER_TASK=", "SLURM_JOB_ID="};

bool begins_with_any(const std::string& entry, std::span<const char* const> beginnings) {
  return std::ranges::any_of(beginnings, [&](const char* beginning) { return entry.starts_with(beginning); });
}

}  // namespace

std::vector<RankPlace> place_ranks(const std::vector<int>& ranks_of_hosts) {
  std::vector<RankPlace> places;
  std::vector<int> hosts_with;  // by local rank: so far
  for (std::size_t host = 0; host < ranks_of_hosts.size(); ++host) {
    const int ranks = ranks_of_hosts[host];
    hosts_with.resize(std::max(hosts_with.size(), static_cast<std::size_t>(ranks)));
    for (int local_rank = 0; local_rank < ranks; ++local_rank) {
      places.push_back({.rank = static_cast<int>(places.size()),
                        .local_rank = local_rank,
                        .local_size = ranks,
                        .host = static_cast<int>(host),
                        .hosts = static_cast<int>(ranks_of_hosts.size()),
                        .cross_rank = hosts_with[static_cast<std::size_t>(local_rank)]++});
    }
  }
  for (RankPlace& place : places) place.cross_size = hosts_with[static_cast<std::size_t>(place.local_rank)];
  return places;
}

Variables rank_variables(const RankPlace& place, const JobFacts& facts, const std::vector<Role>& roles,
                         int incarnation) {
  const RoleOfRank own = roles.empty() ? RoleOfRank{.rank = place.rank} : role_of(roles, place.rank);
  const Role role = roles.empty() ? Role{.ranks = facts.ranks} : roles[own.number];
  const std::string rank = std::to_string(place.rank);
  const std::string size = std::to_string(facts.ranks);
  const std::string local_rank = std::to_string(place.local_rank);
  const std::string local_size = std::to_string(place.local_size);
  Variables variables = {
      {"RANK", rank},
      {"WORLD_SIZE", size},
      {"LOCAL_RANK", local_rank},
      {"LOCAL_WORLD_SIZE", local_size},
      {"GROUP_RANK", std::to_string(place.host)},
      {"GROUP_WORLD_SIZE", std::to_string(place.hosts)},
      {"ROLE_NAME", role.name.empty() ? "default" : role.name},
      {"ROLE_RANK", std::to_string(own.rank)},
      {"ROLE_WORLD_SIZE", std::to_string(role.ranks)},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(facts.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(facts.max_restarts)},
      {"MASTER_ADDR", facts.master_address},
      {"MASTER_PORT", std::to_string(facts.master_port)},
      {"HOROVOD_RANK", rank},
      {"HOROVOD_SIZE", size},
      {"HOROVOD_LOCAL_RANK", local_rank},
      {"HOROVOD_LOCAL_SIZE", local_size},
      {"HOROVOD_CROSS_RANK", std::to_string(place.cross_rank)},
      {"HOROVOD_CROSS_SIZE", std::to_string(place.cross_size)},
      {"HOROVOD_HOSTNAME", facts.host_name},
      {"LOCKSTEP_JOB", facts.job},
      {"LOCKSTEP_STORE", facts.store},
      {"LOCKSTEP_CONTROL_FD", std::to_string(facts.control_fd)},
      {"LOCKSTEP_SECRET_FD", std::to_string(facts.secret_fd)},
      {"LOCKSTEP_CORES", std::to_string(facts.cores)},
  };
  if (facts.has_views) variables.emplace_back("LOCKSTEP_INCARNATION", std::to_string(incarnation));
  if (facts.node >= 0) variables.emplace_back("LOCKSTEP_NODE", std::to_string(facts.node));
  if (facts.threads > 0) variables.emplace_back("OMP_NUM_THREADS", std::to_string(facts.threads));
  return variables;
}

Variables default_variables(const std::vector<std::string>& inherited, const Variables& variables) {
  const std::string name = "PYTHONFAULTHANDLER";
  const bool is_said =
      std::ranges::any_of(inherited, [&](const auto& entry) { return entry.starts_with(name + "="); }) ||
      std::ranges::any_of(variables, [&](const auto& variable) { return variable.first == name; });
  if (is_said) return {};
  return {{name, "1"}};
}

std::vector<std::string> merge_environment(const std::vector<std::string>& inherited,
                                           const Variables& variables) {
  std::set<std::string> replaced;
  for (const auto& [name, value] : variables) replaced.insert(name);
  std::vector<std::string> merged;
  for (const std::string& entry : inherited) {
    if (!replaced.contains(entry.substr(0, entry.find('=')))) merged.push_back(entry);
  }
  for (const auto& [name, value] : variables) merged.push_back(name + "=" + value);
  return merged;
}

Variables variables_for_others(const std::vector<std::string>& environment, const Variables& more) {
  Variables variables;
  for (const std::string& entry : environment) {
    const std::size_t end = entry.find('=');
    if (end == std::string::npos || end == 0) continue;
    if (begins_with_any(entry, host_variables) && !begins_with_any(entry, sent_all_the_same)) continue;
    variables.emplace_back(entry.substr(0, end), entry.substr(end + 1));
  }
  variables.insert(variables.end(), more.begin(), more.end());
  return variables;
}

std::vector<std::string> this_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

}  // namespace lockstep::launch

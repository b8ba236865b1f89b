#include "lockstep/launch/local_start.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/hosts/this_host.h"
#include "lockstep/topology/topology.h"

namespace lockstep::launch {
namespace {

/// The program's name as it is found from here.
std::string in_folder(const RunOptions& options, const std::string& name) {
  const std::filesystem::path folder = options.remote.folder;
  if (folder.empty()) return name;
  if (!std::filesystem::is_directory(folder))
    throw_invalid_argument("--wdir " + folder.string() + " is no folder here");
  return name.find('/') == std::string::npos ? name : std::filesystem::absolute(folder / name).string();
}

}  // namespace

void require_sense(const RunOptions& options) {
  const int most = options.hosts.empty() ? most_ranks : most_slots;
  if (options.ranks < 1 || options.ranks > most)
    throw_invalid_argument(fmt::format("-np {} is not a number of ranks from 1 to {}", options.ranks, most));
  for (const Host& host : options.hosts) {
    if (host.slots > most_ranks)
      throw_invalid_argument(
          fmt::format("{} ranks on {}: a host takes {} at most", host.slots, host.name, most_ranks));
  }
  if (!options.function &&
      std::ranges::any_of(roles_of(options), [](const Role& role) { return role.command.empty(); }))
    throw_invalid_argument("there is no program to run");
  if (survives_deaths(options) && (options.function || options.nodes))
    throw_invalid_argument(
        "ranks may die (--tolerate, --restart, --min-np) only in a job that one launcher starts");
  if (options.master_port < 0 || options.master_port > 65535)
    throw_invalid_argument("--master-port is no port");
  if (!options.nested && env::text("LOCKSTEP_JOB")) {
    throw_invalid_argument("this is already rank " + env::text("RANK").value_or("?") +
                           " of a lockstep run; start the inner job outside of it, or pass --nested");
  }
}

bool is_here(const RunOptions& options) {
  if (options.nodes) return false;
  const bool nowhere_else = options.hosts.size() == 1 && is_this_host(options.hosts.front().name);
  return options.hosts.empty() || (nowhere_else && options.remote.shell.empty());
}

LocalStart prepare_here(const RunOptions& options) {
  LocalStart start;
  for (const Role& role : roles_of(options)) {
    if (!role.command.empty())
      start.programs.push_back(find_program(in_folder(options, role.command.front()), search_path()));
  }
  start.placement = place(topology::find_cores(), placement_request(options.ranks, options.pin));
  return start;
}

}  // namespace lockstep::launch

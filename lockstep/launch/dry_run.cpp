#include "lockstep/launch/dry_run.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/words.h"
#include "lockstep/launch/agents/host_tree.h"
#include "lockstep/launch/agents/remote_shell.h"
#include "lockstep/launch/environment.h"
#include "lockstep/launch/local_start.h"

namespace lockstep::launch {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(agents::quoted_for_shell(word));
  return fmt::format("{}", fmt::join(quoted, " "));
}

std::string ranks_of_host(int first, int count) {
  return count == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, first + count - 1);
}

/// What ranks run, a line for each role.
std::string programs_of(const RunOptions& options) {
  std::string text;
  int first = 0;
  const std::vector<Role> roles = roles_of(options);
  for (const Role& role : roles) {
    const std::string who =
        roles.size() == 1 ? "" : fmt::format("{}, {}: ", ranks_of_host(first, role.ranks), role.name);
    text += fmt::format("  {}{}\n", who, joined(role.command));
    first += role.ranks;
  }
  return text;
}

DryRun on_this_host(const RunOptions& options) {
  const LocalStart start = prepare_here(options);
  for (const Program& program : start.programs) {
    if (!program.problem.empty())
      return {.text = "lockstep run: " + program.problem + "\n", .exit_code = program.exit_code};
  }
  std::string text = start.placement.line.empty() ? "" : start.placement.line + "\n";
  text += fmt::format("would start {} here, as children of this process:\n{}",
                      ranks_of_host(0, options.ranks), programs_of(options));
  return {.text = text};
}

std::string on_hosts(const RunOptions& options) {
  std::size_t widest = 0;
  for (const Host& host : options.hosts) widest = std::max(widest, host.name.size());
  std::string text = fmt::format("would start {} on {}:\n", base::counted(options.ranks, "rank"),
                                 base::counted(static_cast<int>(options.hosts.size()), "host"));
  int first = 0;
  const auto shells = agents::shells_for(options.remote, options.hosts, "SOCKETS");
  for (std::size_t i = 0; i < shells.size(); ++i) {
    const Host& host = options.hosts[i];
    text += fmt::format("  {:{}}  {}, by {}\n", host.name, widest, ranks_of_host(first, host.slots),
                        joined(agents::agent_command(shells[i], host.name)));
    first += host.slots;
  }
  return text + (options.roles.size() > 1 ? "of these:\n" : "each of them:\n") + programs_of(options);
}

std::string with_other_launchers(const RunOptions& options) {
  const NodeOptions& nodes = *options.nodes;
  const std::string range = nodes.least == nodes.most ? std::to_string(nodes.most)
                                                      : fmt::format("{} to {}", nodes.least, nodes.most);
  return fmt::format("would {} {} launchers that meet at {}, and start {} here:\n{}",
                     nodes.leads ? "lead" : "be one of", range, nodes.meeting.to_string(),
                     base::counted(options.ranks, "rank"), programs_of(options));
}

std::string settings(const RunOptions& options) {
  std::string text;
  for (const auto& [name, value] : options.remote.variables)
    text += fmt::format("with {}={}\n", name, agents::quoted_for_shell(value));
  if (!options.remote.folder.empty()) text += "in " + options.remote.folder + "\n";
  if (options.max_restarts > 0)
    text += fmt::format("again up to {} where a rank fails\n", base::counted(options.max_restarts, "time"));
  if (!options.output.folder.empty())
    text += "what ranks print goes into files under " + options.output.folder + "\n";
  return text;
}

}  // namespace

DryRun dry_run(const RunOptions& options) {
  require_sense(options);
  DryRun result;
  if (options.nodes) {
    result.text = with_other_launchers(options);
  } else if (is_here(options)) {
    result = on_this_host(options);
  } else {
    result.text = on_hosts(options);
  }
  if (result.exit_code == 0) result.text += settings(options);
  return result;
}

}  // namespace lockstep::launch

#include "run_roles.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace {

using lockstep::throw_invalid_argument;
using lockstep::launch::Role;
using lockstep::launch::RunOptions;

using Words = std::vector<std::string>;

constexpr int most_restarts = 1 << 16;
constexpr int usual_restarts = 3;
constexpr const char* separator = ":";
constexpr const char* all_roles = "all";

bool has_count(const std::string& role) { return role.find(':') != std::string::npos; }

/// "NAME:RANKS", or a name alone, of as many ranks as there are.
Role role_of(const std::string& text) {
  const std::size_t end = std::min(text.find(':'), text.size());
  Role role{.name = text.substr(0, end)};
  if (role.name.empty() || role.name == all_roles)
    throw_invalid_argument("--role \"" + text + "\": a role has a name, which is not \"all\"");
  if (end < text.size()) {
    role.ranks = static_cast<int>(lockstep::env::parse_integer("--role " + role.name, text.substr(end + 1), 1,
                                                               lockstep::launch::most_ranks));
  }
  return role;
}

/// The roles that a command after a ":" begins with, which are cut off.
Words take_roles(Words& command) {
  Words roles;
  const std::string name = "--role";
  while (!command.empty() && command.front().starts_with("--")) {
    std::string word = command.front();
    command.erase(command.begin());
    if (word == "--") break;
    if (word.starts_with(name + "=")) {
      roles.push_back(word.substr(name.size() + 1));
    } else if (word == name && !command.empty()) {
      roles.push_back(command.front());
      command.erase(command.begin());
    } else {
      throw_invalid_argument("\"" + word +
                             "\" after a \":\": only --role NAME:RANKS stands there, before a program; other "
                             "options stand before the first one");
    }
  }
  if (roles.empty()) throw_invalid_argument("after a \":\" stands --role NAME:RANKS, and then its program");
  return roles;
}

Role& find_role(std::vector<Role>& roles, const std::string& option, const std::string& name) {
  const auto found = std::ranges::find_if(roles, [&](const Role& role) {
    return role.name == name || (role.name.empty() && name == "default");  // as ROLE_NAME has it
  });
  if (found != roles.end()) return *found;
  Words names;
  for (const Role& role : roles) {
    if (!role.name.empty()) names.push_back(role.name);
  }
  throw_invalid_argument(fmt::format(
      "{} {}: there is no such role; {}", option, name,
      names.empty() ? "--role NAME:RANKS makes some, and all means all ranks"
                    : fmt::format("there are {}, and all means all of them", fmt::join(names, ", "))));
}

template <class Change>
void change_roles(std::vector<Role>& roles, const std::string& option, const Words& names, Change change) {
  for (const std::string& name : names) {
    if (name.empty()) throw_invalid_argument(option + " is empty; all means all ranks");
    if (name == all_roles) {
      std::ranges::for_each(roles, change);
    } else {
      change(find_role(roles, option, name));
    }
  }
}

}  // namespace

std::vector<Words> split_commands(RunFlags& flags, const Words& words) {
  std::vector<Words> commands(1);
  const bool has_roles = std::ranges::any_of(flags.roles, has_count);
  const auto colon = std::ranges::find(words, separator);
  if (!has_roles && colon != words.end() && std::next(colon) != words.end() &&
      (std::next(colon)->starts_with("-n") || std::next(colon)->starts_with("--role") ||
       *std::next(colon) == "--np")) {
    throw_invalid_argument(
        "after a \":\" another program is meant? Then each has a role: --role NAME:RANKS before the first "
        "one and after the \":\", "
        "in place of -np");
  }
  for (const std::string& word : words) {
    if (has_roles && word == separator) {
      commands.emplace_back();
    } else {
      commands.back().push_back(word);
    }
  }
  flags.roles_of_commands = {static_cast<int>(flags.roles.size())};
  for (std::size_t i = 1; i < commands.size(); ++i) {
    const Words more = take_roles(commands[i]);
    flags.roles.insert(flags.roles.end(), more.begin(), more.end());
    flags.roles_of_commands.push_back(static_cast<int>(more.size()));
  }
  if (flags.roles.size() > 1 && !std::ranges::all_of(flags.roles, has_count))
    throw_invalid_argument("several roles say how many ranks each has: --role NAME:RANKS");
  return commands;
}

int ranks_of_roles(const RunFlags& flags) {
  int ranks = 0;
  for (const std::string& text : flags.roles) ranks += role_of(text).ranks;
  return ranks;
}

void choose_roles(const RunFlags& flags, const std::vector<Words>& commands, RunOptions& options) {
  std::vector<Role> roles;
  for (const std::string& text : flags.roles) {
    Role role = role_of(text);
    if (role.ranks == 0) role.ranks = options.ranks;
    if (std::ranges::find(roles, role.name, &Role::name) != roles.end())
      throw_invalid_argument("--role " + role.name + " is given twice; each role has a name of its own");
    roles.push_back(std::move(role));
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    for (int role = 0; role < flags.roles_of_commands[i]; ++role) roles[next++].command = commands[i];
  }
  if (roles.empty()) roles.push_back({.ranks = options.ranks, .command = options.command});
  int ranks = 0;
  for (const Role& role : roles) ranks += role.ranks;
  if (ranks != options.ranks && !options.nodes) {
    throw_invalid_argument(
        fmt::format("the roles have {} ranks together, and there are to be {} (-np)", ranks, options.ranks));
  }
  if (options.nodes && std::ranges::any_of(flags.roles, has_count))
    throw_invalid_argument("--role NAME:RANKS and --nnodes: only one launcher can share ranks out to roles");
  const bool has_number = !flags.max_restarts.empty();
  const int number = has_number ? static_cast<int>(lockstep::env::parse_integer(
                                      "--max-restarts", flags.max_restarts, 0, most_restarts))
                                : 0;
  change_roles(roles, "--tolerate", flags.tolerated, [](Role& role) { role.is_tolerated = true; });
  change_roles(roles, "--restart", flags.restarted,
               [&](Role& role) { role.restarts = has_number ? number : usual_restarts; });
  if (!flags.least_ranks.empty()) {
    options.ends_together = true;
    options.least_ranks =
        static_cast<int>(lockstep::env::parse_integer("--min-np", flags.least_ranks, 1, options.ranks));
    for (Role& role : roles) {
      role.is_tolerated = true;
      role.restarts = std::max(role.restarts, number);
    }
  }
  options.roles = std::move(roles);
  if (!survives_deaths(options)) options.max_restarts = number;
}

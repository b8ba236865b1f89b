#include "lockstep/launch/agents/remote_shell.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <string_view>

#include "lockstep/launch/agents/wire.h"
#include "lockstep/launch/hosts/this_host.h"

namespace lockstep::launch::agents {
namespace {

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

/// What ssh must not ask, nor wait for without end: sshd answers within a minute, or the network is cut.
std::vector<std::string> ssh_options(const RemoteOptions& remote) {
  constexpr int questions = 4;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(remote.start_timeout).count();
  return {"-T",
          "-x",
          "-oBatchMode=yes",
          fmt::format("-oConnectTimeout={}", seconds),
          fmt::format("-oServerAliveInterval={}", cut_network_limit.count() / questions),
          fmt::format("-oServerAliveCountMax={}", questions)};
}

bool is_ssh(const std::vector<std::string>& command) {
  return !command.empty() && std::filesystem::path(command.front()).filename() == "ssh";
}

/// As a value of ssh's, which expands %.
std::string control_path(const std::string& socket) {
  std::string path = "-oControlPath=";
  for (const char c : socket) path += c == '%' ? std::string("%%") : std::string(1, c);
  return path;
}

}  // namespace

std::string quoted_for_shell(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./=:,@%+").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

RemoteShell shell_for(const RemoteOptions& remote, const std::string& host) {
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
  if (is_ssh(shell.command)) {
    const auto options = ssh_options(remote);
    shell.command.insert(shell.command.end(), options.begin(), options.end());
  }
  return shell;
}

bool can_share(const RemoteShell& shell) {
  return shell.kind == RemoteShell::Kind::ssh && is_ssh(shell.command);
}

std::vector<std::string> agent_command(const RemoteShell& shell, const std::string& host) {
  std::vector<std::string> command = shell.command;
  if (!shell.shared.empty()) {
    // In a process of its own, which goes when nobody has needed it for so many seconds: else the first command would seem to
    // go on for as long as another shares its connection.
    const std::vector<std::string> first = {"-oControlMaster=yes", "-oControlPersist=10"};
    if (shell.by_way_of.empty()) command.insert(command.end(), first.begin(), first.end());
    command.push_back(control_path(shell.shared));
  }
  if (shell.kind == RemoteShell::Kind::ssh) {
    std::string there = "exec " + quoted_for_shell(shell.agent) + " agent";
    if (!shell.by_way_of.empty()) {
      std::string next = "exec";
      for (const std::string& word : shell.command) next += " " + quoted_for_shell(word);
      there = next + " " + quoted_for_shell(host) + " " + quoted_for_shell(there);
    }
    command.insert(command.end(), {shell.by_way_of.empty() ? host : shell.by_way_of, there});
  } else if (shell.kind == RemoteShell::Kind::srun) {
    command.insert(command.end(), {"--nodelist=" + host, shell.agent, "agent"});
  } else {
    command = {shell.agent, "agent"};
  }
  return command;
}

}  // namespace lockstep::launch::agents

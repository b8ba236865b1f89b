#include "lockstep/launch/agents/host_tree.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "lockstep/base/env.h"
#include "lockstep/base/error.h"

namespace lockstep::launch::agents {
namespace {

// Where only this user can look, if there is such a folder. A socket's whole path has 107 bytes, and ssh adds 17.
std::string place_for_sockets() {
  const std::string own = env::text("XDG_RUNTIME_DIR").value_or("");
  return !own.empty() && own.size() < 60 && ::access(own.c_str(), W_OK) == 0 ? own : "/tmp";
}

}  // namespace

std::size_t directly_reached(std::size_t hosts, std::size_t width) {
  return std::min(hosts, std::max(width, (hosts + most_sessions - 1) / most_sessions));
}

std::vector<RemoteShell> shells_for(const RemoteOptions& remote, const std::vector<Host>& hosts,
                                    const std::filesystem::path& sockets) {
  std::vector<RemoteShell> shells;
  for (const Host& host : hosts) shells.push_back(shell_for(remote, host.name));
  const std::size_t direct = directly_reached(hosts.size(), remote.tree_width);
  for (std::size_t i = direct; i < hosts.size(); ++i) {
    RemoteShell& way = shells[i % direct];
    if (!can_share(way) || !can_share(shells[i])) continue;
    way.shared = shells[i].shared = sockets / std::to_string(i % direct);
    shells[i].by_way_of = hosts[i % direct].name;
  }
  return shells;
}

SharedConnections::SharedConnections() {
  std::string name = place_for_sockets() + "/lockstep-ssh-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw_system("making the folder " + name);
  folder_ = name;
}

SharedConnections::~SharedConnections() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace lockstep::launch::agents

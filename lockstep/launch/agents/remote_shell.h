// The command that starts an agent on a host.
#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/run.h"

namespace lockstep::launch::agents {

struct RemoteShell {
  enum class Kind { none, ssh, srun } kind = Kind::none;  ///< none: the agent is started on this host
  std::vector<std::string> command = {};                  ///< "ssh", "-p", "2222"; the host follows
  std::string agent = {};                                 ///< path of `lockstep` there
  /// ssh's: the socket of a connection that others share, to this host, or to the one by whose way it is reached.
  std::string shared = {};
  std::string by_way_of = {};  ///< the host that gets to it; empty: this one does
};

/// Whether hosts can be reached by way of others: ssh shares its connections.
bool can_share(const RemoteShell& shell);

/// How `host` is reached.
RemoteShell shell_for(const RemoteOptions& remote, const std::string& host);

/// One word for a shell: as it is where it is plain, else 'it''s'.
std::string quoted_for_shell(const std::string& text);

/// All words of the command that starts the agent on `host`.
std::vector<std::string> agent_command(const RemoteShell& shell, const std::string& host);

}  // namespace lockstep::launch::agents

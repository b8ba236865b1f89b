// A launcher that opens an ssh connection to each of hundreds of hosts is busy with the keys of all of them. So from some
// hosts on, each is reached by way of another: the launcher asks for it in a session of the connection that it has to that
// one, which then has the work.
//
//   launcher --- host 0 --- host 3           3 of 6 hosts are reached directly
//           \--- host 1 --- host 4
//            \-- host 2 --- host 5
#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "lockstep/launch/agents/remote_shell.h"
#include "lockstep/launch/hosts/host_list.h"
#include "lockstep/launch/run.h"

namespace lockstep::launch::agents {

/// sshd lets a connection have 10 sessions (MaxSessions), of which the host's own agent takes one.
inline constexpr std::size_t most_sessions = 10;

/// How many of `hosts`, the first ones, are reached directly: `width`, or more where each of these would else have more than
/// most_sessions. REQUIRES: width is positive.
std::size_t directly_reached(std::size_t hosts, std::size_t width);

/// How each host is reached, those after the first ones by way of them where ssh gets to both. `sockets`: where shared
/// connections have theirs.
std::vector<RemoteShell> shells_for(const RemoteOptions& remote, const std::vector<Host>& hosts,
                                    const std::filesystem::path& sockets);

/// A folder for the sockets by which ssh shares connections, which it wants as files; gone with this object. Connections
/// that share one already go on.
class SharedConnections {
 public:
  /// Throws Error{system}.
  SharedConnections();
  ~SharedConnections();
  SharedConnections(const SharedConnections&) = delete;
  SharedConnections& operator=(const SharedConnections&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace lockstep::launch::agents

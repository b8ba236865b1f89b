// What socket.cpp and listener.cpp share: kernel addresses, and the one way to wait for a descriptor. Not for
// others.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/socket.h"

namespace lockstep::detail {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

struct Resolved {
  std::vector<SocketAddress> addresses = {};  ///< empty: not found
  std::string reason = {};                    ///< why not
  bool may_come = false;                      ///< trying again later can help
};

/// All addresses of an endpoint, without DNS where it is numeric.
Resolved resolve(const Endpoint& endpoint);

/// A kernel address as endpoint text; "unix:" for an unnamed unix socket.
std::string to_text(const SocketAddress& address);
std::optional<SocketAddress> local_address(int fd);

/// False: the deadline passed before poll(2) saw one of `events` (an error or hang-up counts as seen).
bool wait_ready(int fd, short events, Deadline deadline);

/// A non-blocking, close-on-exec stream socket of that family, with our options if it is tcp.
UniqueFd open_stream(int family);
void set_tcp_options(int fd);

}  // namespace lockstep::detail

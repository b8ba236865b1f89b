// What a connection has carried, as the kernel counts it.
#pragma once

#include <cstdint>

namespace lockstep::base {

struct SocketTraffic {
  std::uint64_t sent_bytes = 0;  ///< that the other side's kernel has
  /// Time in which some were on the way, without that in which the other side had no room.
  std::uint64_t busy_ns = 0;
};

/// Zeros where it is no TCP connection, or the kernel does not tell (Linux tells since 4.10).
SocketTraffic traffic_of(int socket);

}  // namespace lockstep::base

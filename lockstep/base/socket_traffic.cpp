#include "lockstep/base/socket_traffic.h"

#include <linux/tcp.h>  // glibc's own tcp_info ends before these counters
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

namespace lockstep::base {

SocketTraffic traffic_of(int socket) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  if (size < offsetof(tcp_info, tcpi_sndbuf_limited)) return {};
  const std::uint64_t busy_us = info.tcpi_busy_time - std::min(info.tcpi_busy_time, info.tcpi_rwnd_limited);
  const std::uint64_t of_connecting = 1;  // which is acknowledged as a byte is
  return {.sent_bytes = std::max<std::uint64_t>(info.tcpi_bytes_acked, of_connecting) - of_connecting,
          .busy_ns = busy_us * 1000};
}

}  // namespace lockstep::base

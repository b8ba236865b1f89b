#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/socket_address.h"

namespace lockstep {
namespace {

// Anybody on this host may have taken an abstract name; the kernel knows who listens there.
std::string holder_of(const Endpoint& endpoint) try {
  const PeerCredentials holder =
      Socket::connect_once(endpoint, Deadline::after(std::chrono::seconds(1))).peer_credentials();
  return fmt::format("process {} of user {}", holder.pid, holder.uid);
} catch (const Error&) {
  return "a process that does not listen";
}

[[noreturn]] void throw_unbound(const Endpoint& endpoint, int error_number, const std::string& port_option) {
  const std::string text = endpoint.to_string();
  const bool is_tcp = endpoint.kind == Endpoint::Kind::tcp;
  std::string sentence = "listen on " + text + ": " + std::strerror(error_number);
  if (error_number == EADDRINUSE && is_tcp) {
    sentence = fmt::format("port {} on {} is already in use; pass another {}", endpoint.port, endpoint.host,
                           port_option);
  } else if (error_number == EADDRINUSE) {
    sentence = fmt::format(
        "{} is already in use by {}: if that is a job of yours, wait for its end or give this one "
        "another name (MASTER_PORT); if it is not, end that process",
        text, holder_of(endpoint));
  } else if (error_number == EADDRNOTAVAIL) {
    sentence += "; " + endpoint.host + " is not an address of this host";
  }
  throw Error(ErrorCode::system, sentence);
}

bool is_any_v6(const detail::SocketAddress& address) {
  if (address.storage.ss_family != AF_INET6) return false;
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address.storage, sizeof(v6));
  return IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}

// 0, or errno.
int bind_and_listen(int fd, const detail::SocketAddress& address) {
  const int on =
      1;  // lets us follow a predecessor whose connections are in TIME_WAIT; a live listener still wins
  if (address.storage.ss_family != AF_UNIX) (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (is_any_v6(address)) {  // IPv4's, too, whatever the system's default is
    const int off = 0;
    (void)::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(fd, address.get(), address.bytes) != 0) return errno;
  return ::listen(fd, SOMAXCONN) == 0 ? 0 : errno;
}

// Failures of one connection that died in the backlog, which accept(2) reports on the listener.
bool is_about_the_client(int error_number) {
  switch (error_number) {
    case ECONNABORTED:
    case EPROTO:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETUNREACH:
    case ENONET:
    case EOPNOTSUPP: return true;
    default: return false;
  }
}

}  // namespace

Listener Listener::bind(const Endpoint& endpoint, const std::string& port_option) {
  const detail::Resolved resolved = detail::resolve(endpoint);
  if (resolved.addresses.empty())
    throw Error(ErrorCode::system, "listen on " + endpoint.to_string() + ": " + resolved.reason);
  int error_number = 0;
  for (const detail::SocketAddress& address : resolved.addresses) {
    UniqueFd fd = detail::open_stream(address.storage.ss_family);
    error_number = bind_and_listen(fd.get(), address);
    if (error_number != 0) continue;
    fd.keep_from_children();
    Endpoint real = endpoint;
    if (endpoint.port == 0 && endpoint.kind == Endpoint::Kind::tcp) {
      real.port = Endpoint::parse(detail::to_text(detail::local_address(fd.get()).value_or(address))).port;
    }
    return Listener(std::move(fd), std::move(real));
  }
  throw_unbound(endpoint, error_number, port_option);
}

Listener Listener::bind_all_addresses(std::uint16_t port) {
  try {
    return bind(Endpoint::tcp("::", port));
  } catch (const Error&) {
    // A system without IPv6; or the port is taken, which this says.
    return bind(Endpoint::tcp("0.0.0.0", port));
  }
}

Socket Listener::accept(Deadline deadline) {
  for (;;) {
    if (auto socket = try_accept()) return std::move(*socket);
    if (!detail::wait_ready(fd(), POLLIN, deadline)) {
      throw Error(ErrorCode::timeout,
                  "listening on " + endpoint_.to_string() + ": nobody connected before the deadline");
    }
  }
}

std::optional<Socket> Listener::try_accept() {
  for (;;) {
    UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) return Socket(std::move(fd));
    if (errno == EAGAIN) return std::nullopt;
    if (errno != EINTR && !is_about_the_client(errno)) throw_system("accept on " + endpoint_.to_string());
  }
}

}  // namespace lockstep

#include "lockstep/base/socket_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

SocketAddress unix_address(const std::string& name) {
  sockaddr_un raw{};
  raw.sun_family = AF_UNIX;
  std::memcpy(raw.sun_path + 1, name.data(), std::min(name.size(), sizeof(raw.sun_path) - 1));
  SocketAddress address;
  std::memcpy(&address.storage, &raw, sizeof(raw));
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::string unix_text(const SocketAddress& address) {
  constexpr std::size_t path = offsetof(sockaddr_un, sun_path);
  if (address.bytes <= path) return "unix:";
  const std::string name(reinterpret_cast<const char*>(&address.storage) + path, address.bytes - path);
  return name.front() == '\0' ? "unix:@" + name.substr(1) : "unix:" + name.substr(0, name.find('\0'));
}

}  // namespace

Resolved resolve(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::unix_abstract) return {.addresses = {unix_address(endpoint.host)}};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  const std::string port = std::to_string(endpoint.port);
  addrinfo* list = nullptr;
  int failure = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (failure == EAI_NONAME) {
    hints.ai_flags = AI_NUMERICSERV;
    failure = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  }
  if (failure != 0) {
    const std::string why = failure == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(failure);
    return {.addresses = {},
            .reason = "host name \"" + endpoint.host + "\": " + why,
            .may_come = failure == EAI_AGAIN};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  Resolved found;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.bytes = entry->ai_addrlen;
    found.addresses.push_back(address);
  }
  if (found.addresses.empty())
    found.reason = "host name \"" + endpoint.host + "\": it has no internet address";
  return found;
}

std::string to_text(const SocketAddress& address) {
  if (address.storage.ss_family == AF_UNIX) return unix_text(address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  const int failure = ::getnameinfo(address.get(), address.bytes, host.data(), host.size(), port.data(),
                                    port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  if (failure != 0) return "tcp:?";
  const std::string name = host.data();
  return "tcp:" + (name.find(':') != std::string::npos ? "[" + name + "]" : name) + ":" + port.data();
}

std::optional<SocketAddress> local_address(int fd) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (::getsockname(fd, address.get(), &address.bytes) != 0) return std::nullopt;
  return address;
}

bool wait_ready(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, deadline.poll_milliseconds(std::chrono::minutes(10)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw_system("poll");
    if (deadline.expired()) return false;
  }
}

UniqueFd open_stream(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw_system("socket");
  if (family != AF_UNIX) set_tcp_options(fd.get());
  return fd;
}

void set_tcp_options(int fd) {
  // Best effort: a kernel that refuses one of these still carries the bytes.
  const auto set = [fd](int level, int name, int value) {
    (void)::setsockopt(fd, level, name, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace lockstep::detail

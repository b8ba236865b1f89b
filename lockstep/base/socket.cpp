#include "lockstep/base/socket.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/socket_address.h"

namespace lockstep {
namespace {

using detail::SocketAddress;
using detail::wait_ready;

constexpr auto first_pause = std::chrono::milliseconds(1);
constexpr auto longest_pause = std::chrono::milliseconds(50);
// A host that swallows packets is asked again this often, which is what tcp itself would do at first.
constexpr auto attempt_time = std::chrono::seconds(1);
constexpr auto pause_when_cut = std::chrono::milliseconds(20);

/// Nothing gets through any more, or now.
bool means_cut(int error_number) {
  switch (error_number) {
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN: return true;
    default: return false;
  }
}

bool means_closed(int error_number) {
  switch (error_number) {
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN: return true;
    default: return means_cut(error_number);
  }
}

[[noreturn]] void throw_failed(const std::string& peer, int error_number) {
  const std::string text = peer + ": connection closed: " + std::strerror(error_number);
  if (means_closed(error_number)) throw Error(ErrorCode::peer_lost, text);
  throw_system(peer, error_number);
}

[[noreturn]] void throw_late(const std::string& peer, const std::string& what, std::size_t done,
                             std::size_t of) {
  throw Error(ErrorCode::timeout,
              fmt::format("{}: the deadline passed after {} of {} bytes {}", peer, done, of, what));
}

std::string peer_text(int fd) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (::getpeername(fd, address.get(), &address.bytes) != 0) return "a closed connection";
  std::string text = detail::to_text(address);
  if (address.storage.ss_family != AF_UNIX) return text;
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return text;
  if (text == "unix:") text += detail::to_text(detail::local_address(fd).value_or(SocketAddress{})).substr(5);
  return fmt::format("{} (pid {})", text, credentials.pid);
}

// A connection, or why there is none.
struct Attempt {
  UniqueFd fd = {};
  std::string reason = {};
  bool may_come = false;  // a server may be there later
  bool late = false;      // the deadline passed meanwhile
  bool cut = false;       // no network leads there now
};

bool may_come(int error_number) {
  return error_number == ECONNREFUSED || error_number == ENOENT || means_closed(error_number);
}

// Connecting to a port in the ephemeral range of this host, where nobody listens, can pick that very port as
// its own and then succeeds: with itself.
bool is_itself(int fd) {
  const auto local = detail::local_address(fd);
  return local && local->storage.ss_family != AF_UNIX && detail::to_text(*local) == peer_text(fd);
}

int wait_connected(int fd, Deadline deadline) {
  if (!wait_ready(fd, POLLOUT, deadline)) return EINPROGRESS;
  int error_number = 0;
  socklen_t bytes = sizeof(error_number);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &bytes) != 0) return errno;
  return error_number;
}

Attempt try_address(const SocketAddress& address, Deadline deadline) {
  for (;;) {
    UniqueFd fd = detail::open_stream(address.storage.ss_family);
    int error_number = ::connect(fd.get(), address.get(), address.bytes) == 0 ? 0 : errno;
    if (error_number == EINPROGRESS || error_number == EINTR)
      error_number = wait_connected(fd.get(), deadline);
    if (error_number == 0 && is_itself(fd.get())) error_number = ECONNREFUSED;
    if (error_number == 0) return {.fd = std::move(fd), .reason = {}};
    if (error_number == EINPROGRESS) return {.fd = {}, .reason = "no answer", .may_come = true, .late = true};
    if (error_number != EAGAIN) {
      return {.fd = {},
              .reason = std::strerror(error_number),
              .may_come = may_come(error_number),
              .cut = means_cut(error_number)};
    }
    if (deadline.expired()) {  // EAGAIN: a unix socket's backlog is full, so somebody is there
      return {.fd = {}, .reason = "its backlog stays full", .may_come = true, .late = true};
    }
    std::this_thread::sleep_for(first_pause);  // poll(2) does not tell when a backlog has room
  }
}

Attempt attempt(const Endpoint& endpoint, Deadline deadline) {
  if (endpoint.kind == Endpoint::Kind::tcp && endpoint.port == 0) {
    throw_invalid_argument("connect to " + endpoint.to_string() + ": port 0 is for listeners only");
  }
  detail::Resolved resolved = detail::resolve(endpoint);
  Attempt result{.fd = {}, .reason = resolved.reason, .may_come = resolved.may_come};
  std::size_t left = resolved.addresses.size();
  for (const SocketAddress& address : resolved.addresses) {
    // An address that swallows packets may only have its share of the time.
    const auto share = deadline.is_never() ? std::chrono::seconds(30) : deadline.remaining() / left;
    result = try_address(address, left == 1 ? deadline : deadline.earlier_of(Deadline::after(share)));
    if (result.fd) return result;
    --left;
  }
  return result;
}

[[noreturn]] void throw_unconnected(const Endpoint& endpoint, const Attempt& last, ErrorCode code) {
  throw Error(code, "connect to " + endpoint.to_string() + ": " + last.reason);
}

}  // namespace

Socket::Socket(UniqueFd fd, std::string peer) : fd_(std::move(fd)), peer_(std::move(peer)) {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK) != 0) throw_system("fcntl(O_NONBLOCK)");
  if (::fcntl(fd_.get(), F_SETFD, FD_CLOEXEC) != 0) throw_system("fcntl(FD_CLOEXEC)");
  if (peer_.empty()) peer_ = peer_text(fd_.get());
  if (!is_unix()) detail::set_tcp_options(fd_.get());
  fd_.keep_from_children();
}

void Socket::end_when_cut(std::chrono::seconds limit) const {
  if (is_unix()) return;
  constexpr int on = 1, questions = 3;
  const int between = std::max(static_cast<int>(limit.count()) / (questions + 1), 1);
  const int unanswered_ms = static_cast<int>(limit.count()) * 1000;
  const auto set = [&](int level, int name, int value) {
    if (::setsockopt(fd_.get(), level, name, &value, sizeof(value)) != 0) throw_system("setsockopt");
  };
  set(SOL_SOCKET, SO_KEEPALIVE, on);
  set(IPPROTO_TCP, TCP_KEEPIDLE, between);
  set(IPPROTO_TCP, TCP_KEEPINTVL, between);
  set(IPPROTO_TCP, TCP_KEEPCNT, questions);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, unanswered_ms);
}

Socket Socket::connect(const Endpoint& endpoint, Deadline deadline) {
  std::chrono::nanoseconds pause = first_pause;
  for (;;) {
    Attempt last = attempt(endpoint, deadline);
    if (last.fd) return Socket(std::move(last.fd), endpoint.to_string());
    if (!last.may_come) throw_unconnected(endpoint, last, ErrorCode::system);
    if (deadline.expired()) {
      last.reason = "nobody was there before the deadline (last reason: " + last.reason + ")";
      throw_unconnected(endpoint, last, ErrorCode::timeout);
    }
    // Nothing tells when somebody begins to listen there.
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, deadline.remaining()));
    pause = std::min<std::chrono::nanoseconds>(pause * 2, longest_pause);
  }
}

Socket Socket::connect_once(const Endpoint& endpoint, Deadline deadline) {
  Attempt only = attempt(endpoint, deadline);
  if (only.fd) return Socket(std::move(only.fd), endpoint.to_string());
  if (only.late || only.cut) throw_unconnected(endpoint, only, ErrorCode::timeout);
  throw_unconnected(endpoint, only, only.may_come ? ErrorCode::peer_lost : ErrorCode::system);
}

Socket Socket::connect_through_cuts(const Endpoint& endpoint, Deadline deadline,
                                    const std::function<void()>& may_go_on) {
  for (;;) {
    may_go_on();
    try {
      return connect_once(endpoint, deadline.earlier_of(Deadline::after(attempt_time)));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timeout || deadline.expired()) throw;
    }
    // Nothing tells when a network leads there again.
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause_when_cut, deadline.remaining()));
  }
}

std::pair<Socket, Socket> Socket::pair() {
  std::array<int, 2> fds{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) != 0)
    throw_system("socketpair");
  UniqueFd first(fds[0]);
  UniqueFd second(fds[1]);
  return {Socket(std::move(first)), Socket(std::move(second))};
}

void Socket::send_all(std::span<const std::byte> bytes, Deadline deadline) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    if (const auto sent = try_send(bytes.subspan(done))) {
      done += *sent;
    } else if (!wait_ready(fd(), POLLOUT, deadline)) {
      throw_late(peer_, "sent", done, bytes.size());
    }
  }
}

void Socket::receive_all(std::span<std::byte> bytes, Deadline deadline) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto received = try_receive(bytes.subspan(done));
    if (received == 0U) {
      throw Error(ErrorCode::peer_lost,
                  fmt::format("{}: connection closed after {} of {} bytes", peer_, done, bytes.size()));
    }
    if (received) {
      done += *received;
    } else if (!wait_ready(fd(), POLLIN, deadline)) {
      throw_late(peer_, "received", done, bytes.size());
    }
  }
}

std::optional<std::size_t> Socket::try_send(std::span<const std::byte> bytes) {
  for (;;) {
    const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN) return std::nullopt;
    if (errno != EINTR) throw_failed(peer_, errno);
  }
}

std::optional<std::size_t> Socket::try_send_both(std::span<const std::byte> first,
                                                 std::span<const std::byte> second) {
  // Nothing is written through these pointers; iovec is for reading, too.
  iovec parts[] = {{const_cast<std::byte*>(first.data()), first.size()},
                   {const_cast<std::byte*>(second.data()), second.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = std::size(parts);
  for (;;) {
    const ssize_t sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN) return std::nullopt;
    if (errno != EINTR) throw_failed(peer_, errno);
  }
}

std::optional<std::size_t> Socket::try_receive(std::span<std::byte> bytes) {
  for (;;) {
    const ssize_t received = ::recv(fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (received >= 0) return static_cast<std::size_t>(received);
    if (errno == EAGAIN) return std::nullopt;
    if (errno != EINTR) throw_failed(peer_, errno);
  }
}

bool Socket::is_unix() const {
  int domain = 0;
  socklen_t bytes = sizeof(domain);
  return ::getsockopt(fd(), SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

void Socket::shutdown() noexcept { (void)::shutdown(fd(), SHUT_RDWR); }

std::string Socket::local() const {
  const auto address = detail::local_address(fd());
  return address ? detail::to_text(*address) : "a closed connection";
}

}  // namespace lockstep

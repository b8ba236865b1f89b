// Handing over descriptors, which only unix sockets can, and who is at the other end.
#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/socket_address.h"

namespace lockstep {
namespace {

// Room for more descriptors than the one we accept, so that extra ones arrive and can be closed.
constexpr std::size_t room = 4;
struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(room * sizeof(int))> bytes{};
};

void require_unix(const Socket& socket, const char* what) {
  if (!socket.is_unix()) {
    throw_invalid_argument(socket.peer() + ": " + what + " needs a unix socket");
  }
}

void wait_or_throw(const Socket& socket, short events, const char* what, Deadline deadline) {
  if (detail::wait_ready(socket.fd(), events, deadline)) return;
  throw Error(ErrorCode::timeout, socket.peer() + ": the deadline passed while " + what + " a descriptor");
}

std::vector<UniqueFd> take_descriptors(msghdr& message) {
  std::vector<UniqueFd> found;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      found.emplace_back(fd);
    }
  }
  return found;
}

}  // namespace

void Socket::send_fd(int descriptor, std::byte tag, Deadline deadline) {
  require_unix(*this, "handing over a descriptor");
  Control control;
  iovec data{.iov_base = &tag, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(sizeof(int));
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &descriptor, sizeof(int));
  while (::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
    if (errno == EPIPE || errno == ECONNRESET)
      throw Error(ErrorCode::peer_lost, peer_ + ": connection closed");
    if (errno == EAGAIN) {
      wait_or_throw(*this, POLLOUT, "sending", deadline);
    } else if (errno != EINTR) {
      throw_system(peer_ + ": sending a descriptor");
    }
  }
}

ReceivedFd Socket::receive_fd(Deadline deadline) {
  require_unix(*this, "receiving a descriptor");
  for (;;) {
    Control control;
    ReceivedFd result;
    iovec data{.iov_base = &result.tag, .iov_len = 1};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    const ssize_t received = ::recvmsg(fd(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received == 0 || (received < 0 && errno == ECONNRESET)) {
      throw Error(ErrorCode::peer_lost, peer_ + ": connection closed instead of a descriptor");
    }
    if (received > 0) {
      auto descriptors = take_descriptors(message);
      if (descriptors.size() != 1 || (message.msg_flags & MSG_CTRUNC) != 0) {
        throw Error(ErrorCode::corrupt_data,
                    fmt::format("{}: expected one descriptor, received {}", peer_, descriptors.size()));
      }
      result.fd = std::move(descriptors.front());
      return result;
    }
    if (errno == EAGAIN) {
      wait_or_throw(*this, POLLIN, "receiving", deadline);
    } else if (errno != EINTR) {
      throw_system(peer_ + ": receiving a descriptor");
    }
  }
}

std::string Socket::source() const {
  if (is_unix()) {
    const PeerCredentials peer = peer_credentials();
    return peer.uid == ::geteuid() ? fmt::format("process {}", peer.pid) : fmt::format("user {}", peer.uid);
  }
  detail::SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (::getpeername(fd(), address.get(), &address.bytes) != 0) return "nobody";
  if (address.storage.ss_family != AF_INET6) return Endpoint::parse(detail::to_text(address)).host;
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) std::fill_n(v6.sin6_addr.s6_addr + 8, 8, std::uint8_t{0});
  v6.sin6_scope_id = 0;
  return Endpoint::parse(detail::to_text(address)).host;
}

PeerCredentials Socket::peer_credentials() const {
  require_unix(*this, "asking who is there");
  ucred credentials{};
  socklen_t bytes = sizeof(credentials);
  if (::getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0)
    throw_system(peer_ + ": SO_PEERCRED");
  return {.pid = credentials.pid, .uid = credentials.uid};
}

}  // namespace lockstep

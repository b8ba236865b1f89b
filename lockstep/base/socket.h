// Sockets, once for the whole library: the store, the shared-memory transport (which hands descriptors over)
// and the tcp transport all need connect, accept, send and receive that never wait past a deadline, never
// raise SIGPIPE, never leak into a child and always say which connection failed and why.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep {

/// Where a server listens, as text: "unix:@name" (an abstract unix socket: it stops at the network namespace
/// and leaves no file behind), "tcp:host:port" or "tcp:[v6 address]:port".
struct Endpoint {
  enum class Kind { unix_abstract, tcp };

  Kind kind = Kind::tcp;
  std::string host;        ///< tcp: a numeric address or a name; unix_abstract: the name without '@'
  std::uint16_t port = 0;  ///< tcp only; 0 lets Listener::bind choose

  /// Throws Error{invalid_argument} naming the text and the accepted forms.
  static Endpoint parse(const std::string& text);
  static Endpoint tcp(std::string host, std::uint16_t port);
  /// `name` has 1 to 107 bytes without '@' in front; longer or empty is Error{invalid_argument}.
  static Endpoint unix_abstract(std::string name);

  /// The inverse of parse().
  std::string to_string() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

struct PeerCredentials {
  pid_t pid = -1;
  uid_t uid = static_cast<uid_t>(-1);
};

struct ReceivedFd {
  UniqueFd fd;
  std::byte tag{};
};

/// One connected stream. The descriptor is always non-blocking and close-on-exec; the calls below that take a
/// Deadline wait by poll(2). TCP connections have TCP_NODELAY, and keepalive (a host that vanishes without a
/// word is noticed within a minute by whoever waits for it); a forked child has no part in them.
///
/// Thread safety: one thread may send while another receives; shutdown() may be called from any thread.
/// Errors: peer_lost when the other side closed or reset the connection (peer() stays empty: a socket knows
/// no ranks), timeout when the deadline passed, system for everything else. Each names the connection.
class Socket {
 public:
  /// Not connected: every call but the moves and fd() is a bug.
  Socket() = default;
  /// Takes a connected stream socket; `peer` is what errors call it ("" asks the kernel).
  explicit Socket(UniqueFd fd, std::string peer = {});

  /// Tries until the deadline, because the server may come up later: a refused or reset connection, a full
  /// backlog and a host that is not reachable yet are tried again. Error{timeout} names the endpoint and the
  /// last reason. Numeric addresses need no DNS; the system's resolver, where a name needs it, keeps its own
  /// time.
  static Socket connect(const Endpoint& endpoint, Deadline deadline);
  /// The same with one attempt at each of the name's addresses. Nobody there is Error{peer_lost}, at once. That no network leads
  /// there is no word about who is there: Error{timeout}, at once.
  static Socket connect_once(const Endpoint& endpoint, Deadline deadline);
  /// The same, and anew until the deadline where no network leads there or it swallows what is sent: for a server that was there,
  /// whose end it would be to refuse. Before each attempt, once a second and more, `may_go_on` may throw.
  static Socket connect_through_cuts(
      const Endpoint& endpoint, Deadline deadline, const std::function<void()>& may_go_on = [] {});
  /// Two connected unix sockets.
  static std::pair<Socket, Socket> pair();

  /// Returns when all of `bytes` are with the kernel.
  void send_all(std::span<const std::byte> bytes, Deadline deadline);
  /// Returns when `bytes` is full; an end before that is Error{peer_lost} "connection closed".
  void receive_all(std::span<std::byte> bytes, Deadline deadline);

  /// How many bytes went out, at least one; nullopt: it would block. REQUIRES: bytes not empty.
  std::optional<std::size_t> try_send(std::span<const std::byte> bytes);
  /// The same of two buffers, one after the other. REQUIRES: not both are empty.
  std::optional<std::size_t> try_send_both(std::span<const std::byte> first,
                                           std::span<const std::byte> second);
  /// How many bytes came in; 0: the other side closed; nullopt: it would block. REQUIRES: bytes not empty.
  std::optional<std::size_t> try_receive(std::span<std::byte> bytes);

  /// Hands a duplicate of `descriptor` and one byte to the other side. Unix sockets only.
  void send_fd(int descriptor, std::byte tag, Deadline deadline);
  /// The counterpart; the descriptor is close-on-exec. Anything but exactly one descriptor with one byte is
  /// Error{corrupt_data}, and whatever came is closed.
  ReceivedFd receive_fd(Deadline deadline);

  /// Who connected (or listened) at the other end, as the kernel saw it then. Unix sockets only.
  PeerCredentials peer_credentials() const;
  bool is_unix() const;
  /// Whom it comes from, to count connections by: the address without the port (of IPv6 the network, whose owner has as
  /// many addresses as he likes); over a unix socket the user, and of our own the process.
  std::string source() const;

  /// The connection ends within `limit`, of whole seconds, after the other side's kernel does not answer any more: the network
  /// is cut, or its host is gone. A process that is stopped there does not matter. Nothing to do for unix sockets.
  void end_when_cut(std::chrono::seconds limit) const;

  /// Wakes every thread that waits in this socket; they and all later calls find it closed.
  void shutdown() noexcept;

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  /// Endpoint text of this side ("unix:" alone for an unnamed socket).
  std::string local() const;
  /// What errors call the other side, e.g. "tcp:10.0.0.2:29500" or "unix:@name (pid 4711)".
  const std::string& peer() const { return peer_; }

 private:
  UniqueFd fd_;
  std::string peer_;
};

/// A listening socket. Thread safety: one thread at a time.
class Listener {
 public:
  /// Listens on that address only ("0.0.0.0" has to be asked for). Port 0 is chosen by the kernel: see
  /// endpoint(). A taken port or name is Error{system} that says what to pass instead: another `port_option`.
  static Listener bind(const Endpoint& endpoint,
                       const std::string& port_option = "--master-port/MASTER_PORT");
  /// On all addresses of this host, of IPv6 and IPv4 where it has both. Throws as bind().
  static Listener bind_all_addresses(std::uint16_t port);

  Socket accept(Deadline deadline);
  /// nullopt: nobody is waiting. Error{system} (e.g. out of descriptors) leaves the caller where it was.
  std::optional<Socket> try_accept();

  /// What to give to Socket::connect; has the real port.
  const Endpoint& endpoint() const { return endpoint_; }
  int fd() const { return fd_.get(); }

 private:
  Listener(UniqueFd fd, Endpoint endpoint) : fd_(std::move(fd)), endpoint_(std::move(endpoint)) {}

  UniqueFd fd_;
  Endpoint endpoint_;
};

}  // namespace lockstep

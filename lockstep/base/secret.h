// A job's secret, and the proof that the other side of a connection holds it too. Anyone on the network can
// connect to a port; nothing that such a stranger sends may be parsed, so every connection of a job begins
// with this exchange of three messages of fixed size:
//
//   server → client   nonce_s (32 bytes)
//   client → server   nonce_c (32 bytes), HMAC(secret, "client" ‖ nonce_s ‖ nonce_c) (32 bytes)
//   server → client   HMAC(secret, "server" ‖ nonce_s ‖ nonce_c) (32 bytes), or 32 zero bytes: refused
//
// HMAC is HMAC-SHA256; the labels in full, and the case without a secret, are in docs/wire_formats.md. The
// proof keeps strangers out; it does not encrypt what follows.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/unique_fd.h"

namespace lockstep {

/// 16 to 4096 bytes that are never printed, and zeroed when they go.
class Secret {
 public:
  static constexpr std::size_t min_bytes = 16;
  static constexpr std::size_t max_bytes = 4096;

  /// 32 bytes from the system's generator.
  static Secret random();
  /// Error{invalid_argument} unless the size is within the limits.
  static Secret from_bytes(std::span<const std::byte> bytes);
  /// Reads LOCKSTEP_SECRET_FILE's file. One line end at its end is not part of the secret, so that a copy
  /// made in an editor is the same secret. Error{invalid_argument}: a file that group or others may touch,
  /// one that belongs to somebody else, one that is no regular file, too short or too long; Error{system}:
  /// unreadable.
  static Secret from_file(const std::string& path);
  /// Reads what to_memfd() of the parent process made, from offset 0, without moving a shared file position.
  /// Does not take the descriptor.
  static Secret from_inherited_fd(int fd);

  Secret(const Secret& other) = default;
  Secret(Secret&& other) noexcept = default;
  Secret& operator=(Secret other) noexcept;
  ~Secret();

  /// An anonymous file with the secret, sealed against every change, close-on-exec.
  UniqueFd to_memfd() const;

  std::span<const std::byte> bytes() const { return bytes_; }
  /// In constant time.
  friend bool operator==(const Secret& a, const Secret& b);

 private:
  explicit Secret(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  std::vector<std::byte> bytes_;
};

/// Whom a connection lets in. Without a secret a unix socket asks the kernel for the other side's user, which
/// has to be ours; a tcp connection has nobody to ask, so it is refused unless the user opted in.
struct Trust {
  std::optional<Secret> secret = std::nullopt;
  bool tcp_without_secret = false;  ///< the explicit insecure option: everybody on the network is let in
};

/// Error{invalid_argument} saying what to do, if `trust` has nothing to offer for connections of this kind.
void require_usable(const Trust& trust, Endpoint::Kind kind);

/// The client's half: returns when both sides have proven themselves.
/// Errors: invalid_argument "wrong secret" (either side's), or nothing to prove with (see Trust); timeout;
/// peer_lost.
void prove_as_client(Socket& socket, const Trust& trust, Deadline deadline);
/// The server's half, for a server that may wait.
void prove_as_server(Socket& socket, const Trust& trust, Deadline deadline);

/// The server's half for one that may not: send challenge(), collect answer_bytes from the client, send
/// reply().
class ServerProof {
 public:
  static constexpr std::size_t challenge_bytes = 32;
  static constexpr std::size_t answer_bytes = 64;
  static constexpr std::size_t reply_bytes = 32;

  /// Looks at the socket's other side where that is all there is to prove (see Trust).
  /// Error{invalid_argument}: not to be let in. Borrows `trust` until it is gone.
  ServerProof(const Socket& socket, const Trust& trust);

  std::span<const std::byte, challenge_bytes> challenge() const { return challenge_; }
  /// True if the client holds the secret. Either way reply() is then to be sent; after a false, close.
  [[nodiscard]] bool check(std::span<const std::byte, answer_bytes> answer);
  std::span<const std::byte, reply_bytes> reply() const { return reply_; }

 private:
  const Trust& trust_;
  std::array<std::byte, challenge_bytes> challenge_{};
  std::array<std::byte, reply_bytes> reply_{};
};

}  // namespace lockstep

// Who may talk to whom. Anyone on the network can connect to a port; nothing that such a stranger sends may be
// parsed, so every connection of a job begins with a proof that both sides know the job's secret and mean the same
// connection: what is listened for there, by which rank of which group of which job, at which endpoint, and who
// connects. A proof that is passed on to another port, sent back, or sent again proves nothing there.
//
//   server → client   greeting: which version of this the server speaks
//   client → server   opening: its claim and its share of SPAKE2 (base/spake2.h)
//   server → client   answer: its share and its confirmation, so that it proves itself first
//   client → server   its confirmation, or zeros
//   server → client   verdict: one byte
//
// Each message has a fixed size; docs/wire_formats.md has them. Who listens in learns nothing on which guesses of the
// secret could be tried. The proof keeps strangers out; it neither encrypts nor signs what follows (docs/security.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/socket.h"
#include "lockstep/base/spake2.h"

namespace lockstep {

/// Whom a connection lets in. Without a secret a unix socket asks the kernel for the other side's user, which
/// has to be ours; a tcp connection has nobody to ask, so it is refused unless the user opted in.
struct Trust {
  std::optional<Secret> secret = std::nullopt;
  bool tcp_without_secret = false;  ///< the explicit insecure option: everybody on the network is let in
};

/// Error{invalid_argument} saying what to do, if `trust` has nothing to offer for connections of this kind.
void require_usable(const Trust& trust, Endpoint::Kind kind);

/// What somebody listens for, which whoever connects knows beforehand. Both sides prove that they mean the same.
struct Destination {
  enum class Kind : std::uint32_t { store = 1, door = 2, region = 3, launcher = 4 };

  Kind kind = Kind::store;
  std::string job = {};    ///< its name, the same on all its hosts
  std::string group = {};  ///< name; none for a store
  int rank = -1;           ///< of who listens, in the group; -1 for a store or launcher
  /// Where, as text that both have: it was configured, or went through the store. Not what the kernel says, which
  /// differs where addresses are translated on the way.
  std::string endpoint = {};

  /// "the store of job \"port-29500\" at tcp:10.0.0.1:29500"
  std::string to_string() const;
};

/// What a client says of itself. Nobody believes it before it is proven.
struct Claim {
  std::int32_t rank = -1;  ///< in the group; for a store in the world, for a launcher that of its host
  std::uint32_t use = 0;   ///< what the connection is for, where a place has several uses

  friend bool operator==(const Claim&, const Claim&) = default;
};

namespace proof {
using Greeting = std::array<std::byte, 32>;
using Opening = std::array<std::byte, 4 + 8 + sizeof(spake2::Share)>;
using Answer = std::array<std::byte, sizeof(spake2::Share) + sizeof(spake2::Confirmation)>;
using Confirmation = spake2::Confirmation;
enum class Verdict : std::uint8_t { refused = 0, welcome = 1 };
}  // namespace proof

/// The client's half: returns when both sides have proven themselves, and the server has a place for this one.
/// Errors: invalid_argument "wrong secret" (or another place), turned away by a server that knows the secret, or
/// nothing to prove with (see Trust); corrupt_data: another version, or something else, listens there; timeout;
/// peer_lost.
void prove_as_client(Socket& socket, const Trust& trust, const Destination& destination, const Claim& claim,
                     Deadline deadline);
/// The server's half, for a server that may wait. Returns what the client says of itself.
Claim prove_as_server(Socket& socket, const Trust& trust, const Destination& destination, Deadline deadline);

/// The client's half, message by message.
class ClientProof {
 public:
  ClientProof(const Trust& trust, const Destination& destination, const Claim& claim);

  const proof::Opening& opening() const { return opening_; }
  /// What to send next. Zeros: the server has not proven itself.
  proof::Confirmation hear(const proof::Answer& answer);
  bool server_is_right() const { return server_is_right_; }

 private:
  const spake2::Half half_;
  const spake2::Identities identities_;
  proof::Opening opening_{};
  bool server_is_right_ = false;
};

/// The server's half for one that may not wait: send greeting(); then, until is_over(), collect awaited() bytes from
/// the client, give them to hear(), and send what it returns. Costs nothing worth mentioning before the client's
/// opening has come.
class ServerProof {
 public:
  static constexpr std::size_t most_awaited = sizeof(proof::Opening);

  /// Looks at the socket's other side where that is all there is to prove (see Trust).
  /// Error{invalid_argument}: not to be let in. Borrows `trust` and `destination` until it is gone.
  ServerProof(const Socket& socket, const Trust& trust, const Destination& destination);

  static const proof::Greeting& greeting();
  /// How many bytes the client's next message has.
  std::size_t awaited() const;
  /// REQUIRES: as many bytes, and !is_over(). The result lives as long as this.
  std::span<const std::byte> hear(std::span<const std::byte> bytes);

  bool is_over() const { return state_ == State::proven || state_ == State::refused; }
  /// The client holds the secret and means this place: welcome() is to be sent, or that it is refused all the same.
  bool is_proven() const { return state_ == State::proven; }
  /// Whose claim it is. REQUIRES: is_proven().
  const Claim& claim() const { return claim_; }
  /// Why it is over without a proof, as a sentence about the client.
  std::string refusal() const;

 private:
  enum class State { magic, opening, confirmation, proven, refused };

  std::span<const std::byte> refuse(const char* why);
  std::span<const std::byte> answer(std::span<const std::byte> opening);

  const Trust& trust_;
  const Destination& destination_;
  const std::string client_;
  State state_ = State::magic;
  const char* why_ = "";
  Claim claim_{};
  spake2::Confirmation expected_{};
  proof::Answer reply_{};
};

}  // namespace lockstep

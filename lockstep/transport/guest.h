// Somebody who has connected and may be anyone: he proves that he knows the job's secret, and which rank he is. One
// that waits for many guests collects what each has sent so far, and waits for nobody alone.
#pragma once

#include <array>
#include <span>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/proof.h"
#include "lockstep/base/socket.h"

namespace lockstep {

class Guest {
 public:
  /// Greets. Borrows `trust` and `destination`. Error: invalid_argument (see ServerProof), peer_lost.
  Guest(Socket connection, const Trust& trust, const Destination& destination)
      : socket_(std::move(connection)), proof_(socket_, trust, destination) {
    send(ServerProof::greeting());
  }

  Socket& socket() { return socket_; }

  /// Takes what has come of the proof; true when it is whole and right: welcome() or turn_away() is next. A wrong one
  /// is answered here. Error: invalid_argument if it is wrong, peer_lost.
  [[nodiscard]] bool prove() {
    while (!proof_.is_over()) {
      const auto message = std::span(bytes_).first(proof_.awaited());
      if (!receive(message)) return false;
      send(proof_.hear(message));
    }
    if (!proof_.is_proven()) throw_invalid_argument(proof_.refusal());
    return true;
  }

  /// REQUIRES: prove() was true.
  bool is_proven() const { return proof_.is_proven(); }
  const Claim& claim() const { return proof_.claim(); }

  /// Lets the guest speak. Error: peer_lost.
  void welcome() { say(proof::Verdict::welcome); }
  /// There is no place for what he is. Error: peer_lost.
  void turn_away() { say(proof::Verdict::refused); }

 private:
  void say(proof::Verdict verdict) { send(std::as_bytes(std::span(&verdict, 1))); }

  // A connection on which nothing waits to be sent takes so few bytes whole.
  void send(std::span<const std::byte> bytes) {
    if (!bytes.empty() && socket_.try_send(bytes) != bytes.size())
      throw Error(ErrorCode::peer_lost, socket_.peer() + ": takes nothing");
  }

  bool receive(std::span<std::byte> message) {
    const auto received = socket_.try_receive(message.subspan(received_));
    if (received == 0U)
      throw Error(ErrorCode::peer_lost, socket_.peer() + ": closed before it said who it is");
    received_ += received.value_or(0);
    if (received_ < message.size()) return false;
    received_ = 0;
    return true;
  }

  Socket socket_;
  ServerProof proof_;
  std::array<std::byte, ServerProof::most_awaited> bytes_{};
  std::size_t received_ = 0;
};

}  // namespace lockstep

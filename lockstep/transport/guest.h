// Somebody who has connected and may be anyone: he proves that he knows the job's secret, then says which
// rank he is. One that waits for many guests collects what each has sent so far, and waits for nobody alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/socket.h"

namespace lockstep {

class Guest {
 public:
  /// Sends the challenge. Borrows `trust`. Error: invalid_argument (see ServerProof), peer_lost.
  Guest(Socket connection, const Trust& trust) : socket_(std::move(connection)), proof_(socket_, trust) {
    send(proof_.challenge());
  }

  Socket& socket() { return socket_; }
  Deadline::Clock::time_point since() const { return since_; }
  bool is_proven() const { return is_proven_; }

  /// Takes what has come of the proof; true when it is whole and right: welcome() is next. A wrong one is
  /// answered here. Error: invalid_argument if it is wrong, peer_lost.
  [[nodiscard]] bool prove() {
    if (!receive(ServerProof::answer_bytes)) return false;
    is_proven_ = proof_.check(bytes_);
    if (is_proven_) return true;
    send(proof_.reply());
    throw_invalid_argument(socket_.peer() + ": wrong secret");
  }

  /// Lets the guest speak. Error: peer_lost.
  void welcome() { send(proof_.reply()); }

  /// Takes what has come of what a proven guest says of himself. Error: peer_lost.
  template <class Hello>
  std::optional<Hello> hello() {
    static_assert(std::is_trivially_copyable_v<Hello> && sizeof(Hello) <= ServerProof::answer_bytes);
    if (!receive(sizeof(Hello))) return std::nullopt;
    Hello hello;
    std::memcpy(&hello, bytes_.data(), sizeof(hello));
    return hello;
  }

 private:
  // A connection on which nothing waits to be sent takes so few bytes whole.
  void send(std::span<const std::byte> bytes) {
    if (socket_.try_send(bytes) != bytes.size())
      throw Error(ErrorCode::peer_lost, socket_.peer() + ": takes nothing");
  }

  bool receive(std::size_t bytes) {
    const auto received = socket_.try_receive(std::span(bytes_).first(bytes).subspan(received_));
    if (received == 0U)
      throw Error(ErrorCode::peer_lost, socket_.peer() + ": closed before it said who it is");
    received_ += received.value_or(0);
    if (received_ < bytes) return false;
    received_ = 0;
    return true;
  }

  Socket socket_;
  ServerProof proof_;
  bool is_proven_ = false;
  std::array<std::byte, ServerProof::answer_bytes> bytes_{};
  std::size_t received_ = 0;
  Deadline::Clock::time_point since_ = Deadline::Clock::now();
};

}  // namespace lockstep

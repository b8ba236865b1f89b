// The connections that carry the bytes of one direction between two ranks: one, or several, where a single one does not
// fill the network between them, or there are several networks. Each carries stripe_bytes, and then it is the next one's
// turn, so both sides know where each byte is without a word between them:
//
//   bytes 0..128K -> connection 0, 128K..256K -> connection 1, 256K..384K -> connection 0 ...
//
// While the receiver takes a stripe from one connection, those that follow arrive on the others. The slowest sets the pace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/base/socket.h"

namespace lockstep::tcp {

class Stripes {
 public:
  static constexpr std::size_t stripe_bytes = std::size_t{128} << 10;

  /// How many there are to be. 0: not known yet.
  int count() const { return static_cast<int>(sockets_.size()); }
  /// REQUIRES: before the first is put.
  void set_count(int count) { sockets_.resize(static_cast<std::size_t>(count)); }
  bool has(int index) const { return index < count() && sockets_[static_cast<std::size_t>(index)]; }
  void put(int index, Socket socket) { sockets_[static_cast<std::size_t>(index)] = std::move(socket); }

  /// The one that has the next bytes; null while it is not connected.
  Socket* current() {
    if (sockets_.empty()) return nullptr;
    Socket& socket = count() == 1 ? sockets_[0] : sockets_[position_ / stripe_bytes % sockets_.size()];
    return socket ? &socket : nullptr;
  }
  /// How many bytes it carries before it is the next one's turn. REQUIRES: count() > 0.
  std::size_t room() const { return count() == 1 ? SIZE_MAX : stripe_bytes - position_ % stripe_bytes; }
  void moved(std::size_t bytes) { position_ += bytes; }

  /// Those that are connected.
  template <class Function>
  void each(Function function) const {
    for (const Socket& socket : sockets_) {
      if (socket) function(socket);
    }
  }

 private:
  std::vector<Socket> sockets_;
  std::uint64_t position_ = 0;
};

}  // namespace lockstep::tcp

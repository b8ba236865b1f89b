// The other side of a connection, as a script plays it. Nothing waits: what has not come is not there.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/socket.h"
#include "tests/fuzz/script.h"

namespace lockstep::fuzz {

class OtherSide {
 public:
  /// The descriptor of this side goes to the code under test.
  OtherSide() : OtherSide(Socket::pair()) {}

  Socket take_socket() { return std::move(theirs_); }

  /// False: they have closed it.
  bool say(Input bytes) {
    try {
      return bytes.empty() || mine_.try_send(bytes) == bytes.size();
    } catch (const Error&) {
      return false;
    }
  }
  bool say(const std::string& text) { return say(std::as_bytes(std::span(text))); }
  void end() { mine_ = Socket(); }
  bool has_ended() const { return !mine_; }

  /// All that they have said so far.
  const std::string& hear() {
    std::array<std::byte, 4096> part;
    try {
      while (mine_) {
        const auto count = mine_.try_receive(part);
        if (!count || *count == 0) break;
        heard_.append(reinterpret_cast<const char*>(part.data()), *count);
      }
    } catch (const Error&) {  // they closed it without having read all
      return heard_;
    }
    return heard_;
  }

 private:
  explicit OtherSide(std::pair<Socket, Socket> sides)
      : mine_(std::move(sides.first)), theirs_(std::move(sides.second)) {}

  Socket mine_;
  Socket theirs_;
  std::string heard_;
};

}  // namespace lockstep::fuzz

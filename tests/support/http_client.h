// Who asks a server on this host by HTTP, well or badly.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/socket.h"

namespace lockstep::testing::http {

inline Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }

inline Socket connect(int port) {
  return Socket::connect(Endpoint::tcp("127.0.0.1", static_cast<std::uint16_t>(port)), patience());
}

inline void say(Socket& socket, const std::string& text) {
  socket.send_all(std::as_bytes(std::span(text)), patience());
}

/// Until the other side closes.
inline std::string read_all(Socket& socket) {
  std::string text;
  try {
    for (char byte = 0;; text += byte)
      socket.receive_all(std::as_writable_bytes(std::span(&byte, 1)), patience());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
  }
  return text;
}

/// The answer to a request of this first line.
inline std::string ask(int port, const std::string& line) {
  Socket socket = connect(port);
  say(socket, line + "\r\nHost: here\r\n\r\n");
  return read_all(socket);
}

}  // namespace lockstep::testing::http

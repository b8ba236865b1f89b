#include "lockstep/group/told_error.h"

#include <iterator>

namespace lockstep {

std::string to_text(const Error& error) {
  return std::to_string(static_cast<int>(error.code())) + " " + std::to_string(error.peer().value_or(-1)) +
         "\n" + error.what();
}

Error read_error(std::istream& text) {
  int code = 0;
  int peer = -1;
  text >> code >> peer;
  text.get();
  const std::string message{std::istreambuf_iterator<char>(text), {}};
  return {static_cast<ErrorCode>(code), message, peer < 0 ? std::nullopt : std::optional(peer)};
}

Error store_gone(int store_host, const std::string& place, const std::string& before) {
  const bool launched = store_host < 0;
  return {ErrorCode::peer_lost,
          std::string(launched ? "the launcher" : "rank " + std::to_string(store_host)) + ", which holds " +
              place + ", ended before " + before + "; look at what it printed last",
          launched ? std::nullopt : std::optional(store_host)};
}

}  // namespace lockstep

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

namespace {

std::string who_holds(int store_host, const std::string& place) {
  const std::string who = store_host < 0 ? "the launcher" : "rank " + std::to_string(store_host);
  return who + ", which holds " + place + ", ";
}

std::optional<int> rank_of(int store_host) {
  return store_host < 0 ? std::nullopt : std::optional(store_host);
}

}  // namespace

Error store_gone(int store_host, const std::string& place, const std::string& before) {
  return {ErrorCode::peer_lost,
          who_holds(store_host, place) + "ended before " + before + "; look at what it printed last",
          rank_of(store_host)};
}

void ask_store(int store_host, const std::string& place, const std::string& before,
               const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.peer()) throw;  // the store's own errors name nobody
    if (error.code() == ErrorCode::peer_lost) throw store_gone(store_host, place, before);
    if (error.code() != ErrorCode::timeout) throw;
    throw Error(ErrorCode::timeout,
                who_holds(store_host, place) + "does not answer: see whether it is stopped, or overloaded",
                rank_of(store_host));
  }
}

}  // namespace lockstep

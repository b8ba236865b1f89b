#include "lockstep/rendezvous/store_replies.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

using store_wire::Operation;
using store_wire::Status;

namespace {
constexpr std::size_t least_room = std::size_t{64} << 10;
}

StoreReply StoreReplies::receive(Socket& socket, Deadline deadline) {
  store_wire::HeaderBytes bytes{};
  socket.receive_all(bytes, deadline);
  const store_wire::Header header = store_wire::decode_header(bytes);
  if (header.body_bytes > store_wire::longest_reply(operation_, header.kind)) {
    throw Error(ErrorCode::corrupt_data, socket.peer() + ": not a store's reply: a body of " +
                                             std::to_string(header.body_bytes) + " bytes");
  }
  StoreReply reply{.status = static_cast<Status>(header.kind)};
  while (reply.body.size() < header.body_bytes) {  // room is made as bytes arrive
    const std::size_t before = reply.body.size();
    reply.body.resize(before + std::min(header.body_bytes - before, std::max(least_room, before)));
    socket.receive_all(std::as_writable_bytes(std::span(reply.body)).subspan(before), deadline);
  }
  check(reply);
  return reply;
}

void StoreReplies::check(const StoreReply& reply) {
  switch (reply.status) {
    case Status::present: return see(reply.body);
    case Status::parked:
      if (std::exchange(is_parked_, true)) {
        throw Error(ErrorCode::corrupt_data, "store message: it said before that it will answer later");
      }
      return;
    case Status::done:
      if (operation_ == Operation::wait && std::ranges::count(seen_, false) > 0) {
        throw Error(ErrorCode::corrupt_data, "store message: a wait that ends before its keys are there");
      }
      [[fallthrough]];
    case Status::missing:
    case Status::refused: is_over_ = true;
  }
}

void StoreReplies::see(const std::string& index) {
  const auto key = static_cast<std::uint64_t>(store_wire::decode_number(index));
  if (key >= seen_.size()) throw Error(ErrorCode::corrupt_data, "store message: a key that nobody asked for");
  seen_[key] = true;
}

}  // namespace lockstep

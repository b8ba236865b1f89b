// A store that answers to a request what it likes: the client takes what fits its request, and ends.
#include "lockstep/rendezvous/store_replies.h"

#include "tests/fuzz/conversation.h"

namespace lockstep::fuzz::store_replies {
namespace {

using store_wire::Operation;
using store_wire::Status;

std::string replies_in(Script& script) {
  std::string replies;
  while (!script.is_over()) {
    const int kind = script.below(3);
    const int number = script.byte();
    if (kind == 0) replies += script.text(static_cast<std::size_t>(number));
    if (kind == 1)
      replies += store_wire::encode_reply(static_cast<Status>(number % 6),
                                          script.text(static_cast<std::size_t>(number) / 6));
    if (kind == 2) replies += store_wire::encode_reply(Status::present, store_wire::encode_number(number));
  }
  return replies;
}

void check(Operation operation, const StoreReply& reply, const StoreReplies& replies) {
  const bool is_more = reply.status == Status::present || reply.status == Status::parked;
  require(replies.is_over() != is_more, "present and parked announce more, all others are last");
  require(!is_more || operation == Operation::wait || operation == Operation::get,
          "only who waits hears more");
  require(reply.status != Status::missing || operation == Operation::try_get ||
              operation == Operation::erase || operation == Operation::withdraw,
          "only what may be missing is missing");
  const bool has_value = operation == Operation::get || operation == Operation::try_get ||
                         operation == Operation::compare_set || operation == Operation::add ||
                         operation == Operation::erase_all;
  require(reply.body.empty() || has_value || reply.status != Status::done,
          "a value is for who asked for one");
  if (operation != Operation::wait || reply.status != Status::done) return;
  require(std::ranges::count(replies.seen(), false) == 0, "a wait is over when each key was seen");
}

}  // namespace

int run_one(Input input) {
  Script script(input);
  const auto operation = static_cast<Operation>(1 + script.below(10));
  const auto keys = static_cast<std::size_t>(operation == Operation::wait ? script.below(4) : 1);
  OtherSide store;
  Socket socket = store.take_socket();
  (void)store.say(replies_in(script));
  store.end();
  StoreReplies replies(operation, keys);
  try {
    while (!replies.is_over()) check(operation, replies.receive(socket, Deadline::never()), replies);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt_data || error.code() == ErrorCode::peer_lost,
            "what is no reply is corrupt data");
  }
  return 0;
}

}  // namespace lockstep::fuzz::store_replies

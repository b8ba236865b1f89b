#include "lockstep/backend/mismatch.h"

#include <fmt/core.h>

namespace lockstep {
namespace {

std::string in_words(const Caller& caller) {
  return fmt::format("rank {} called {} as #{}", caller.rank, to_string(caller.signature), caller.number);
}

/// What two calls differ in that look alike in words.
std::string hidden_difference(const Signature& one, const Signature& other) {
  if (to_string(one) != to_string(other)) return "";
  return one.reduce_op == ReduceOp::custom ? "the operation's name or the size of its elements"
                                           : "their counts";
}

}  // namespace

Error mismatch(const Caller& one, const Caller& other, const std::string& difference) {
  const std::string hidden =
      difference.empty() ? hidden_difference(one.signature, other.signature) : difference;
  return Error(ErrorCode::mismatch,
               fmt::format("ranks called different operations: {}, {}{}", in_words(one), in_words(other),
                           hidden.empty() ? "" : fmt::format(" (they differ in {})", hidden)));
}

Error mismatch_of_blocks(const Caller& receiver, const Caller& sender) {
  return mismatch(
      receiver, sender,
      fmt::format("their counts: rank {} sends {} bytes to rank {}, which expects {}", sender.rank,
                  sender.signature.elements, receiver.rank, receiver.signature.elements));
}

}  // namespace lockstep

#include "lockstep/backend/native/call_comparison.h"

#include "lockstep/backend/native/native_backend.h"

namespace lockstep {
namespace {

// Ranks differ in speed; who waits for less tells nobody.
constexpr std::uint64_t long_wait_ns = 250'000'000;
// Listening to somebody takes a connection. In large groups only ranks that have one listen to each other:
// most often enough, because ranks that wait for each other have had to do with each other before.
constexpr int few_ranks = 16;

}  // namespace

void CallComparison::note(std::uint64_t number, const Signature& signature) {
  called_[number % remembered] = signature;
  next_ = number + 1;
}

const Signature* CallComparison::find(std::uint64_t number) const {
  const bool is_known = number < next_ && next_ - number <= remembered;
  return is_known ? &called_[number % remembered] : nullptr;
}

void CallComparison::look(NativeTask& waiting, std::uint64_t waited_ns) {
  if (waiting.is_message() || waited_ns < long_wait_ns) return;
  for (const int peer : waiting.missing()) {
    if (waiting.told_to == peer) continue;
    waiting.told_to = peer;
    backend_.link(peer).post_call(waiting.number, waiting.signature);
  }
  for (int peer = 0; peer < backend_.ranks(); ++peer) {
    if (peer == backend_.rank()) continue;
    if (backend_.ranks() > few_ranks && !backend_.has_link(peer)) continue;
    if (const auto call = backend_.link(peer).listen()) compare(peer, *call);
  }
}

void CallComparison::compare(int peer, const MessageHeader& call) const {
  const Signature* mine = find(call.sequence);
  if (mine == nullptr || mine->matches(call.signature)) return;
  throw mismatch(backend_.world_rank(backend_.rank()), *mine, call.sequence, backend_.world_rank(peer),
                 call.signature, call.sequence);
}

Error CallComparison::explain(int peer, const Link::Unexpected& unexpected) const {
  std::uint64_t number = unexpected.sequence;
  Signature expected = unexpected.expected;
  const MessageHeader& arrived = unexpected.arrived;
  // Left over from an earlier call, which then was another one here.
  if (const Signature* mine = find(arrived.sequence); mine != nullptr && !mine->matches(arrived.signature)) {
    number = arrived.sequence;
    expected = *mine;
  }
  return mismatch(backend_.world_rank(backend_.rank()), expected, number, backend_.world_rank(peer),
                  arrived.signature, arrived.sequence);
}

}  // namespace lockstep

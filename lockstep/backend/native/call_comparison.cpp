#include "lockstep/backend/native/call_comparison.h"

#include <algorithm>

#include "lockstep/backend/mismatch.h"
#include "lockstep/backend/native/native_task.h"

namespace lockstep {
namespace {

// Ranks differ in speed: one that has waited for less than this tells nobody.
constexpr std::uint64_t long_wait_ns = 250'000'000;

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
  const auto is_connected = [&](int peer) { return members_.size() <= few_ranks || links_.has(peer); };
  for (const int peer : waiting.missing()) {
    if (!is_connected(peer) || std::ranges::find(waiting.told, peer) != waiting.told.end()) continue;
    waiting.told.push_back(peer);
    links_.to(peer).post_call(waiting.number, waiting.signature());
  }
  for (int peer = 0; peer < members_.size(); ++peer) {
    if (peer == members_.rank() || !is_connected(peer)) continue;
    if (const auto call = links_.to(peer).listen()) compare(peer, *call);
  }
}

void CallComparison::compare(int peer, const MessageHeader& call) const {
  const Signature* mine = find(call.sequence);
  const Signature theirs = call.signature.whole_call();
  if (mine == nullptr || mine->matches(theirs)) return;
  throw mismatch({members_.self().world, *mine, call.sequence},
                 {members_[peer].world, theirs, call.sequence});
}

Error CallComparison::explain(int peer) const {
  const Link::Unexpected& unexpected = *links_.to(peer).unexpected();
  const MessageHeader& arrived = unexpected.arrived;
  Caller me{members_.self().world, unexpected.expected, unexpected.sequence};
  Caller other{members_[peer].world, arrived.signature, arrived.sequence};
  const bool is_same_call = unexpected.sequence == arrived.sequence &&
                            unexpected.expected.whole_call().matches(arrived.signature.whole_call());
  if (is_same_call && arrived.signature.has_counts_of_its_own()) return mismatch_of_blocks(me, other);
  me.signature = me.signature.whole_call();
  other.signature = other.signature.whole_call();
  // Left over from an earlier call, which then was another one here.
  if (const Signature* mine = find(other.number); mine != nullptr && !mine->matches(other.signature)) {
    me.number = other.number;
    me.signature = *mine;
  }
  return mismatch(me, other);
}

}  // namespace lockstep

#include "lockstep/backend/native/standstill.h"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/backend/native/call_comparison.h"
#include "lockstep/backend/native/only_thread.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Kind = MessageHeader::Kind;

// A rank that has waited for less than this tells nobody.
constexpr std::uint64_t long_message_wait_ns = 250'000'000;

/// Whether `rank` cannot be through with a collective before `peer` has called it, whatever the algorithm: what
/// it gets depends on that.
bool depends_on(const Signature& called, int rank, int peer) {
  const bool may_be_empty = called.elements == 0 || called.detail != 0;  // the block of `rank`, or of `peer`
  switch (called.operation) {
    case Operation::barrier: return true;
    case Operation::all_reduce: return called.elements > 0;
    case Operation::reduce: return called.elements > 0 && rank == called.root;
    case Operation::broadcast: return called.elements > 0 && peer == called.root;
    case Operation::scatter: return !may_be_empty && peer == called.root;
    case Operation::gather: return !may_be_empty && rank == called.root;
    case Operation::all_gather:
    case Operation::reduce_scatter: return !may_be_empty;
    case Operation::all_to_all: return !may_be_empty || called.has_counts_of_its_own();
    default: return false;
  }
}

}  // namespace

void Standstill::look(const std::deque<NativeTask*>& waiting) {
  suspicion_.clear();
  const std::uint64_t now = trace::now_ns();
  const auto first = [&](bool message) {
    const auto found = std::ranges::find_if(waiting, [&](const NativeTask* task) {
      return task->is_message() == message && task->waiting_since_ns != 0 &&
             now - task->waiting_since_ns >= long_message_wait_ns;
    });
    return found == waiting.end() ? nullptr : *found;
  };
  const bool is_all = waiting.size() == 1 && waiting.front()->is_awaited && is_only_thread();
  if (const NativeTask* message = first(true)) tell(*message, is_all);
  if (const NativeTask* collective = first(false)) judge(*collective, is_all);
}

void Standstill::tell(const NativeTask& waiting, bool is_all) {
  const std::vector<int> missing = waiting.missing();
  if (missing.size() != 1 || missing.front() == parts_.rank()) return;
  const int peer = missing.front();
  const bool sends = waiting.signature().operation == Operation::send;
  const MessageHeader wait{.kind = is_all ? Kind::standstill : Kind::wait,
                           .sequence = numbers_.next_collective(),
                           .bytes = sends ? waiting.number : parts_.mailbox.arrived_from(peer),
                           .signature = waiting.signature()};
  if (told_.peer == peer && told_.wait == wait) return;
  told_ = {peer, wait};
  parts_.links.to(peer).post_word(wait);
}

void Standstill::judge(const NativeTask& waiting, bool is_all) {
  for (int peer = 0; peer < parts_.ranks(); ++peer) {
    if (peer == parts_.rank() || !awaits(waiting, peer)) continue;
    Link& link = parts_.links.to(peer);
    static_cast<void>(link.listen());
    const auto& wait = link.told_wait();
    if (!wait || wait->sequence > waiting.number || !cannot_end(*wait, peer)) continue;
    const bool sends = wait->signature.operation == Operation::send;
    const int other = parts_.members[peer].world, me = parts_.members.self().world;
    const std::string text = fmt::format("rank {} waits in {} {} rank {}, which waits in {} for rank {}",
                                         other, to_string(wait->signature), sends ? "to" : "from", me,
                                         to_string(waiting.signature(), waiting.number), other);
    if (is_all && wait->kind == Kind::standstill)
      throw Error(ErrorCode::mismatch, text + ": neither can go on");
    suspicion_ = text;
  }
}

/// Whether this rank's collective needs that rank to call it.
bool Standstill::awaits(const NativeTask& waiting, int peer) const {
  const std::vector<int> missing = waiting.missing();
  if (std::ranges::find(missing, peer) != missing.end()) return true;
  // Listening to somebody on another host takes a connection: in large groups it has to be there already.
  const bool may_listen = parts_.ranks() <= few_ranks || parts_.links.has(peer);
  return !parts_.is_one_host && may_listen && depends_on(waiting.signature(), parts_.rank(), peer);
}

/// Whether the message in which `peer` waits cannot end before this rank does something for it: nothing that was
/// sent is on its way.
bool Standstill::cannot_end(const MessageHeader& wait, int peer) const {
  if (wait.signature.operation == Operation::receive) return wait.bytes == numbers_.sent_to(peer);
  // What a network has room for is not known here; a ring is read by this rank alone.
  return parts_.members[peer].is_here() && parts_.mailbox.arrived_from(peer) <= wait.bytes;
}

}  // namespace lockstep

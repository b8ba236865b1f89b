#include "lockstep/schedule/replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/schedule/verify.h"

namespace lockstep::schedule {
namespace {

bool has_chunks(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce ||
         operation == Operation::broadcast;
}

bool has_rooms(Operation operation) {
  return operation != Operation::gather && operation != Operation::all_gather;
}

class Order {
 public:
  Order(const Replay& run, const std::function<void(const Taken&)>& take)
      : run_(run), take_(take), ranks_(run.calls.size()) {}

  void all() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < run_.ranks(); ++rank) {
        while (advance(rank)) moved = true;
      }
    }
    for (int rank = 0; rank < run_.ranks(); ++rank) {
      const std::size_t next = at(rank).next;
      if (next < run_.schedule(rank).steps().size()) {
        throw_invalid_argument(
            fmt::format("ranks wait for each other: rank {} does not get past its step {}", rank, next));
      }
    }
  }

 private:
  struct Rank {
    std::size_t next = 0;
    std::uint32_t stages = 0;
    std::map<int, std::vector<std::size_t>> sends;                        // steps, by receiver
    std::map<int, std::size_t> receives;                                  // how many, by sender
    std::map<std::uint32_t, std::pair<int, std::size_t>> not_waited_for;  // receives: sender, which of its
  };

  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  /// False where the rank's next step has to wait, and at its end.
  bool advance(int rank) {
    Rank& state = at(rank);
    const auto& steps = run_.schedule(rank).steps();
    if (state.next == steps.size()) return false;
    Taken taken{.rank = rank, .index = state.next, .step = steps[state.next]};
    const auto peer = static_cast<int>(taken.step.target);
    switch (taken.step.kind) {
      case StepKind::send: state.sends[peer].push_back(state.next); break;
      case StepKind::receive:
        state.not_waited_for[static_cast<std::uint32_t>(state.next)] = {peer, state.receives[peer]++};
        break;
      case StepKind::wait:
        if (!match(taken)) return false;
        break;
      case StepKind::arrive: state.stages = taken.step.target; break;
      case StepKind::await:
        if (!have_all_reached(rank, taken.step.target)) return false;
        break;
      case StepKind::copy:
      case StepKind::reduce: break;
      case StepKind::exchange: throw_invalid_argument("what an engine does is not to be seen");
    }
    ++state.next;
    take_(taken);
    return true;
  }

  bool match(Taken& wait) {
    auto& receives = at(wait.rank).not_waited_for;
    const auto receive = receives.find(wait.step.target);
    if (receive == receives.end()) return true;  // a send
    const auto [sender, which] = receive->second;
    const auto& sent = at(sender).sends[wait.rank];
    if (which >= sent.size()) return false;
    wait.sender = sender;
    wait.send = sent[which];
    receives.erase(receive);
    return true;
  }

  bool have_all_reached(int rank, std::uint32_t stage) {
    for (int other = 0; other < run_.ranks(); ++other) {
      if (share_a_host(run_.calls[0], rank, other) && at(other).stages < stage) return false;
    }
    return true;
  }

  const Replay& run_;
  const std::function<void(const Taken&)>& take_;
  std::vector<Rank> ranks_;
};

}  // namespace

Replay replay_of(const AlgorithmEntry& entry, int ranks, std::size_t chunk_elements) {
  const auto all = static_cast<std::size_t>(ranks) * chunk_elements;
  Call call{
      .operation = entry.operation,
      .elements = has_chunks(entry.operation) ? all : chunk_elements,
      .ranks = ranks,
      .buffers = entry.requirement == Requirement::arena ? BufferClass::arena : BufferClass::private_memory};
  if (entry.requirement == Requirement::hosts) {
    call.buffers = BufferClass::arena;
    for (int rank = 0; rank < ranks; ++rank) call.host_of.push_back(rank / 2);
  }
  if (entry.is_for_nodes && ranks % 2 == 0) call.ranks_per_node = ranks / 2;
  if (entry.operation == Operation::barrier) call.elements = 0;
  if (entry.requirement == Requirement::arena && !has_chunks(entry.operation)) call.elements *= 2;
  if (entry.requirement == Requirement::staging) {
    call.elements *= 2;
    call.window_elements = has_rooms(entry.operation) ? all : chunk_elements;
  }
  Replay run{.calls = calls_of_all(call), .schedules = {}};
  for (const Call& its_call : run.calls) run.schedules.push_back(entry.algorithm(its_call));
  return run;
}

void replay(const Replay& run, const std::function<void(const Taken&)>& take) { Order(run, take).all(); }

}  // namespace lockstep::schedule

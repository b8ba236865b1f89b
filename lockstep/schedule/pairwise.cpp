// pairwise and direct: every rank talks to every other, with nobody in between.
//
//   pairwise all_to_all: in round k ranks whose numbers add up to k exchange their blocks
//            round 0    round 1    round 2    round 3        (modulo the number of ranks)
//   rank 0    itself     <-> 1      <-> 2      <-> 3
//   rank 1    <-> 3      <-> 0      itself     <-> 2
//   rank 2    itself     <-> 3      <-> 0      <-> 1
//   rank 3    <-> 1      <-> 2      itself     <-> 0
//
// p rounds, n bytes each, no byte twice: for long blocks, and for the v form. A rank has one partner a round,
// so it also works in place, with one block of scratch memory.
//
// direct: all messages at once. scatter and gather: one message for each rank. reduce_scatter: each rank
// sends each block to its owner, who adds them all in one go, in the order of ranks: halves are rounded once.
// One round; for short blocks. Source: Thakur, Rabenseifner & Gropp 2005 (pairwise); folklore (direct).
#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/messages.h"

namespace lockstep::schedule {
namespace {

void wait_for_peers(Schedule& steps, const std::vector<Posted>& peers) {
  for (const Posted& posted : peers) wait_for(steps, posted);
}

/// Everybody but this rank, beginning with its neighbour, so that not all begin with the same one.
std::vector<int> others(const Call& call) {
  std::vector<int> ranks;
  for (int step = 1; step < call.ranks; ++step) ranks.push_back(wrapped(call.rank + step, call.ranks));
  return ranks;
}

}  // namespace

Schedule pairwise_all_to_all(const Call& call) {
  Schedule steps;
  const auto into = [&](int peer) { return output_at(call, received_block(call, peer).begin); };
  const auto from = [&](int peer) { return input_at(call, sent_block(call, peer).begin); };
  Place spare{};
  if (call.in_place) {
    std::size_t largest = 0;
    for (const int peer : others(call)) largest = std::max(largest, received_block(call, peer).count);
    spare = steps.scratch(call.rank, largest);
  }
  steps.copy(from(call.rank), into(call.rank), sent_block(call, call.rank).count);
  for (int round = 0; round < call.ranks; ++round) {
    const int peer = wrapped(round - call.rank, call.ranks);
    if (peer == call.rank) continue;
    const std::size_t arriving = received_block(call, peer).count;
    const Place landing = call.in_place ? spare : into(peer);
    const Posted receives = receive_all(steps, call, peer, landing, arriving);
    wait_for(steps, send_all(steps, call, peer, from(peer), sent_block(call, peer).count));
    wait_for(steps, receives);
    if (call.in_place) steps.copy(landing, into(peer), arriving);
  }
  return steps;
}

Schedule direct_scatter(const Call& call) {
  Schedule steps;
  const std::size_t mine = block_of(call, call.rank).count;
  if (call.rank != call.root) {
    wait_for(steps, receive_all(steps, call, call.root, output_at(call, 0), mine));
    return steps;
  }
  std::vector<Posted> sends;
  for (const int peer : others(call)) {
    const Range block = block_of(call, peer);
    sends.push_back(send_all(steps, call, peer, input_at(call, block.begin), block.count));
  }
  steps.copy(input_at(call, block_of(call, call.rank).begin), output_at(call, 0), mine);
  wait_for_peers(steps, sends);
  return steps;
}

Schedule direct_gather(const Call& call) {
  Schedule steps;
  const Range mine = block_of(call, call.rank);
  if (call.rank != call.root) {
    wait_for(steps, send_all(steps, call, call.root, input_at(call, 0), mine.count));
    return steps;
  }
  std::vector<Posted> receives;
  for (const int peer : others(call)) {
    const Range block = block_of(call, peer);
    receives.push_back(receive_all(steps, call, peer, output_at(call, block.begin), block.count));
  }
  steps.copy(input_at(call, 0), output_at(call, mine.begin), mine.count);
  wait_for_peers(steps, receives);
  return steps;
}

Schedule direct_reduce_scatter(const Call& call) {
  Schedule steps;
  const Range mine = block_of(call, call.rank);
  std::vector<Place> sources(static_cast<std::size_t>(call.ranks), input_at(call, mine.begin));
  std::vector<Posted> posted;
  for (const int peer : others(call)) {
    const Place landing = steps.scratch(call.rank, mine.count);
    sources[static_cast<std::size_t>(peer)] = landing;
    posted.push_back(receive_all(steps, call, peer, landing, mine.count));
  }
  for (const int peer : others(call)) {
    const Range block = block_of(call, peer);
    posted.push_back(send_all(steps, call, peer, input_at(call, block.begin), block.count));
  }
  wait_for_peers(steps, posted);
  const Place result = output_at(call, 0);
  steps.reduce(sources, std::span(&result, 1), mine.count, true);
  return steps;
}

}  // namespace lockstep::schedule

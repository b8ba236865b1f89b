// ring: large messages over channels. Every rank sends to the next and receives from the one before, so all
// links work all the time. The buffer is cut into one chunk a rank; chunks are cut into segments, so that a
// rank reduces and passes on one segment while the next is under way.
//
//   reduce-scatter: p-1 rounds; in round k rank r sends chunk r-k-1 and adds what arrives to chunk r-k-2
//            round 0   round 1   round 2                     c0..c3: the chunk that is sent
//   rank 0     c3        c2        c1       then owns c0
//   rank 1     c0        c3        c2       then owns c1
//   rank 2     c1        c0        c3       then owns c2
//   rank 3     c2        c1        c0       then owns c3
//   all-gather: p-1 more rounds pass the finished chunks on; rank r begins with chunk r
//
// An all_reduce is both: 2(p-1) rounds, 2(p-1)/p n bytes a link, the least there can be. A chunk is summed in
// one order, finished on one rank and copied, so all ranks hold the same bits; halves are rounded p-1 times.
// A reduce is the first half, and then each rank sends its chunk to the root.
// Source: Patarasuk & Yuan 2009.
#include <algorithm>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/messages.h"

namespace lockstep::schedule {
namespace {

int next(const Call& call) { return wrapped(call.rank + 1, call.ranks); }
int previous(const Call& call) { return wrapped(call.rank - 1, call.ranks); }

/// The first half. `chunk(rank)`: where a rank's chunk lies in the input. `partial(rank)`: where its sum may
/// grow here; the last is this rank's own and stays. Returns the sends that are still under way.
template <class Chunk, class Partial>
std::vector<Posted> reduce_around(Schedule& steps, const Call& call, Chunk chunk, Partial partial) {
  std::size_t largest = 0;
  for (int rank = 0; rank < call.ranks; ++rank) largest = std::max(largest, chunk(rank).count);
  largest = std::min(largest, call.segment_elements);
  const Place landing[] = {steps.scratch(call.rank, largest), steps.scratch(call.rank, largest)};

  const Range first = chunk(wrapped(call.rank - 1, call.ranks));
  std::vector<Posted> rounds{send_all(steps, call, next(call), input_at(call, first.begin), first.count)};
  for (int round = 0; round < call.ranks - 1; ++round) {
    const int owner = wrapped(call.rank - round - 2, call.ranks);
    const bool last = round == call.ranks - 2;
    const Range whole = chunk(owner);
    const Place sum = partial(owner);
    const auto segments = segments_of({0, whole.count}, call.segment_elements);
    // What grew here two rounds ago may still be on its way out of the same memory.
    if (round > 1) wait_for(steps, rounds[static_cast<std::size_t>(round) - 1]);
    Posted sends;
    Schedule::StepIndex arriving[2] = {};
    const auto post = [&](std::size_t index) {
      arriving[index % 2] = steps.receive(previous(call), landing[index % 2], segments[index].count);
    };
    if (!segments.empty()) post(0);
    for (std::size_t index = 0; index < segments.size(); ++index) {
      const Range segment = segments[index];
      if (index + 1 < segments.size()) post(index + 1);
      steps.wait(arriving[index % 2]);
      const Place sources[] = {landing[index % 2], input_at(call, whole.begin + segment.begin)};
      const Place result = at(sum, segment.begin);
      steps.reduce(sources, std::span(&result, 1), segment.count, last);
      if (!last) sends.push_back(steps.send(next(call), result, segment.count));
    }
    rounds.push_back(std::move(sends));
  }
  // Those not waited for above: of the first round, and of the last two.
  std::vector<Posted> open;
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    const bool waited = round >= 1 && round + 3 <= static_cast<std::size_t>(call.ranks);
    if (!waited) open.push_back(std::move(rounds[round]));
  }
  return open;
}

/// The second half: finished chunks go around; this rank's is in place. A finished segment is passed on at
/// once.
template <class Chunk>
void gather_around(Schedule& steps, const Call& call, Chunk chunk) {
  if (call.ranks == 1) return;
  const Range mine = chunk(call.rank);
  Posted sends = send_all(steps, call, next(call), output_at(call, mine.begin), mine.count);
  for (int round = 0; round < call.ranks - 1; ++round) {
    const Range arriving = chunk(wrapped(call.rank - round - 1, call.ranks));
    const Posted receives =
        receive_all(steps, call, previous(call), output_at(call, arriving.begin), arriving.count);
    const auto segments = segments_of(arriving, call.segment_elements);
    for (std::size_t index = 0; index < segments.size(); ++index) {
      steps.wait(receives[index]);
      if (round == call.ranks - 2) continue;  // the next rank began with this one
      sends.push_back(steps.send(next(call), output_at(call, segments[index].begin), segments[index].count));
    }
  }
  wait_for(steps, sends);
}

void wait_for_rounds(Schedule& steps, const std::vector<Posted>& rounds) {
  for (const Posted& posted : rounds) wait_for(steps, posted);
}

/// Sums that are not this rank's grow in one of two pieces of scratch memory, by turns.
struct Partials {
  Place pieces[2];
  const Call& call;
  Place operator()(int owner) const {
    const int distance = wrapped(call.rank - owner, call.ranks);
    return pieces[distance % 2];
  }
};

Partials partials_of(Schedule& steps, const Call& call, std::size_t elements) {
  const Place first = steps.scratch(call.rank, elements);
  const Place second = steps.scratch(call.rank, elements);
  return {{first, second}, call};
}

}  // namespace

Schedule ring_all_reduce(const Call& call) {
  Schedule steps;
  const auto chunk = [&](int rank) { return chunk_of(call.elements, rank, call.ranks); };
  if (call.ranks == 1) {
    steps.copy(input_at(call, 0), output_at(call, 0), call.elements);
    return steps;
  }
  const auto open =
      reduce_around(steps, call, chunk, [&](int owner) { return output_at(call, chunk(owner).begin); });
  wait_for_rounds(steps, open);
  gather_around(steps, call, chunk);
  return steps;
}

Schedule ring_reduce_scatter(const Call& call) {
  Schedule steps;
  const auto block = [&](int rank) { return block_of(call, rank); };
  if (call.ranks == 1) {
    steps.copy(input_at(call, 0), output_at(call, 0), block(0).count);
    return steps;
  }
  const Partials partials = partials_of(steps, call, call.ranks > 2 ? largest_block(call) : 0);
  wait_for_rounds(steps, reduce_around(steps, call, block, [&](int owner) {
                    return owner == call.rank ? output_at(call, 0) : partials(owner);
                  }));
  return steps;
}

Schedule ring_reduce(const Call& call) {
  Schedule steps;
  const auto chunk = [&](int rank) { return chunk_of(call.elements, rank, call.ranks); };
  if (call.ranks == 1) {
    steps.copy(input_at(call, 0), output_at(call, 0), call.elements);
    return steps;
  }
  const bool is_root = call.rank == call.root;
  const std::size_t largest = chunk(0).count;
  const Partials partials = partials_of(steps, call, call.ranks > 2 ? largest : 0);
  const Place own = is_root ? output_at(call, chunk(call.rank).begin) : steps.scratch(call.rank, largest);
  wait_for_rounds(steps, reduce_around(steps, call, chunk, [&](int owner) {
                    return owner == call.rank ? own : partials(owner);
                  }));
  if (!is_root) {
    wait_for(steps, send_all(steps, call, call.root, own, chunk(call.rank).count));
    return steps;
  }
  std::vector<Posted> chunks;
  for (int rank = 0; rank < call.ranks; ++rank) {
    if (rank == call.rank) continue;
    chunks.push_back(receive_all(steps, call, rank, output_at(call, chunk(rank).begin), chunk(rank).count));
  }
  wait_for_rounds(steps, chunks);
  return steps;
}

Schedule ring_all_gather(const Call& call) {
  Schedule steps;
  const auto block = [&](int rank) { return block_of(call, rank); };
  steps.copy(input_at(call, 0), output_at(call, block(call.rank).begin), block(call.rank).count);
  gather_around(steps, call, block);
  return steps;
}

}  // namespace lockstep::schedule

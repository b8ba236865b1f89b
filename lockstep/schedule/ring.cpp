// ring: large messages over channels. Every rank sends to the next and receives from the one before, so all
// links work all the time. The buffer is cut into one chunk a rank; chunks are cut into segments, so that a
// rank reduces and passes on one segment while the next is under way.
//
//   reduce-scatter: p-1 rounds; in round k rank r sends chunk r-k and adds what arrives to chunk r-k-1
//            round 0   round 1   round 2                     c0..c3: the chunk that is sent
//   rank 0     c0        c3        c2       then owns c1
//   rank 1     c1        c0        c3       then owns c2
//   rank 2     c2        c1        c0       then owns c3
//   rank 3     c3        c2        c1       then owns c0
//   all-gather: p-1 more rounds pass the finished chunks on; rank r begins with chunk r+1
//
// 2(p-1) rounds, 2(p-1)/p n bytes a link, the least there can be. A chunk is summed in one order, finished on
// one rank and copied, so all ranks hold the same bits; halves are rounded p-1 times. Source: Patarasuk &
// Yuan 2009.
#include <algorithm>
#include <vector>

#include "lockstep/schedule/algorithms.h"

namespace lockstep {
namespace {

int wrapped(int rank, int ranks) { return ((rank % ranks) + ranks) % ranks; }

std::vector<Range> segments_of(Range chunk, std::size_t segment_elements) {
  std::vector<Range> segments;
  for (std::size_t done = 0; done < chunk.count; done += segment_elements) {
    segments.push_back({chunk.begin + done, std::min(segment_elements, chunk.count - done)});
  }
  return segments;
}

struct Ring {
  const Call& call;
  int next = wrapped(call.rank + 1, call.ranks);
  int previous = wrapped(call.rank - 1, call.ranks);

  /// Segments of the chunk with this number, counted around the ring.
  std::vector<Range> segments(int chunk) const {
    return segments_of(chunk_of(call.elements, wrapped(chunk, call.ranks), call.ranks),
                       call.segment_elements);
  }
  Place output(std::size_t offset) const { return {Space::output, call.rank, offset}; }
};

using Sends = std::vector<Schedule::StepIndex>;

void wait_for(Schedule& steps, const Sends& sends) {
  for (const auto send : sends) steps.wait(send);
}

/// One round of reduce-scatter: adds the arriving chunk to ours, segment by segment; the next segment is
/// already under way into the other half of `landing`. What is summed is passed on at once.
Sends reduce_round(Schedule& steps, const Ring& ring, int chunk, const Place (&landing)[2], bool last) {
  const auto segments = ring.segments(chunk);
  Sends sends;
  Schedule::StepIndex arriving[2] = {};
  const auto post = [&](std::size_t index) {
    arriving[index % 2] = steps.receive(ring.previous, landing[index % 2], segments[index].count);
  };
  if (!segments.empty()) post(0);
  for (std::size_t index = 0; index < segments.size(); ++index) {
    if (index + 1 < segments.size()) post(index + 1);
    steps.wait(arriving[index % 2]);
    const Place mine = ring.output(segments[index].begin);
    const Place sources[] = {landing[index % 2], mine};
    steps.reduce(sources, std::span(&mine, 1), segments[index].count, last);
    sends.push_back(steps.send(ring.next, mine, segments[index].count));
  }
  return sends;
}

/// One round of all-gather: the arriving chunk is final; it is passed on unless the next rank has it.
Sends gather_round(Schedule& steps, const Ring& ring, const std::vector<Range>& segments,
                   const std::vector<Place>& into, bool pass_on) {
  std::vector<Schedule::StepIndex> arriving;
  for (std::size_t index = 0; index < segments.size(); ++index) {
    arriving.push_back(steps.receive(ring.previous, into[index], segments[index].count));
  }
  Sends sends;
  for (std::size_t index = 0; index < segments.size(); ++index) {
    steps.wait(arriving[index]);
    if (pass_on) sends.push_back(steps.send(ring.next, into[index], segments[index].count));
  }
  return sends;
}

}  // namespace

Schedule ring_all_reduce(const Call& call) {
  Schedule steps;
  if (call.ranks == 1) return steps;
  const Ring ring{call};
  const std::size_t largest = std::min(call.segment_elements, chunk_of(call.elements, 0, call.ranks).count);
  const Place landing[] = {steps.scratch(call.rank, largest), steps.scratch(call.rank, largest)};

  // A chunk that was sent is overwritten p rounds later, so its sends are waited for before it is received
  // anew.
  std::vector<Sends> rounds(1);
  for (const Range segment : ring.segments(call.rank)) {
    rounds[0].push_back(steps.send(ring.next, ring.output(segment.begin), segment.count));
  }
  for (int round = 0; round < call.ranks - 1; ++round) {
    const bool last = round == call.ranks - 2;
    rounds.push_back(reduce_round(steps, ring, call.rank - round - 1, landing, last));
  }
  for (int round = 0; round < call.ranks - 1; ++round) {
    wait_for(steps, rounds[static_cast<std::size_t>(round)]);
    const auto segments = ring.segments(call.rank - round);
    std::vector<Place> into;
    for (const Range segment : segments) into.push_back(ring.output(segment.begin));
    rounds.push_back(gather_round(steps, ring, segments, into, round < call.ranks - 2));
  }
  for (std::size_t round = static_cast<std::size_t>(call.ranks - 1); round < rounds.size(); ++round) {
    wait_for(steps, rounds[round]);
  }
  return steps;
}

Schedule ring_all_gather(const Call& call) {
  Schedule steps;
  const auto part = [&](int rank) {
    return static_cast<std::size_t>(wrapped(rank, call.ranks)) * call.elements;
  };
  const Ring ring{call};
  steps.copy({Space::input, call.rank, 0}, ring.output(part(call.rank)), call.elements);
  if (call.ranks == 1) return steps;
  std::vector<Sends> rounds(1);
  const auto segments = segments_of({0, call.elements}, call.segment_elements);
  for (const Range segment : segments) {
    rounds[0].push_back(steps.send(ring.next, ring.output(part(call.rank) + segment.begin), segment.count));
  }
  for (int round = 0; round < call.ranks - 1; ++round) {
    std::vector<Place> into;
    for (const Range segment : segments)
      into.push_back(ring.output(part(call.rank - round - 1) + segment.begin));
    rounds.push_back(gather_round(steps, ring, segments, into, round < call.ranks - 2));
  }
  for (const Sends& sends : rounds) wait_for(steps, sends);
  return steps;
}

}  // namespace lockstep

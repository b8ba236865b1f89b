// recursive_doubling and halving_doubling: all_reduce in pairs whose distance changes by a factor of two.
//
//   recursive_doubling, four ranks: whole vectors, both partners keep the sum
//            round 0    round 1
//   rank 0    <-> 1      <-> 2
//   rank 1    <-> 0      <-> 3
//   rank 2    <-> 3      <-> 0
//   rank 3    <-> 2      <-> 1
//
// log2 p rounds of n bytes: for small messages. Partners combine in the same order, so both have the same
// bits, and the order of ranks is kept.
//
//   halving_doubling, four ranks: each round one half of what is left is summed here, the other one there
//            halving                doubling
//   rank 0    <-> 2 half   <-> 1 quarter   <-> 1 quarter   <-> 2 half
//   rank 1    <-> 3 half   <-> 0 quarter   <-> 0 quarter   <-> 3 half
//
// 2 log2 p rounds, 2(p-1)/p n bytes: for long messages where a ring's 2(p-1) rounds take too long. A chunk is
// finished on one rank and copied. Halves are rounded log2 p times, once more where p is no power of two; see
// powers.h for those. Source: Thakur, Rabenseifner & Gropp 2005; Rabenseifner 2004.
#include <algorithm>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/powers.h"

namespace lockstep::schedule {
namespace {

/// Chunks [first, first + count) of `parts`, as one range of elements.
Range chunks_of(const Call& call, int first, int count, int parts) {
  const Range begin = chunk_of(call.elements, first, parts);
  const Range last = chunk_of(call.elements, first + count - 1, parts);
  return {begin.begin, last.begin + last.count - begin.begin};
}

/// Sends one range to the partner and receives another.
void exchange(Schedule& steps, const Call& call, int partner, Place from, std::size_t sent, Place into,
              std::size_t received) {
  const Posted receives = receive_all(steps, call, partner, into, received);
  wait_for(steps, send_all(steps, call, partner, from, sent));
  wait_for(steps, receives);
}

/// Combines our part and the partner's, the lower number's first.
void combine(Schedule& steps, bool mine_first, Place mine, Place theirs, Place sum, std::size_t elements,
             bool last) {
  const Place sources[] = {mine_first ? mine : theirs, mine_first ? theirs : mine};
  steps.reduce(sources, std::span(&sum, 1), elements, last);
}

}  // namespace

Schedule recursive_doubling_all_reduce(const Call& call) {
  Schedule steps;
  if (call.ranks == 1) steps.copy(input_at(call, 0), output_at(call, 0), call.elements);
  const PowerOfTwo power(call);
  Place current = take_over(steps, call, power);
  if (!power.hands_over() && power.ranks > 1) {
    const Place landing = steps.scratch(call.rank, call.elements);
    for (int distance = 1; distance < power.ranks; distance *= 2) {
      const int partner = power.number ^ distance;
      exchange(steps, call, power.rank_of(partner), current, call.elements, landing, call.elements);
      combine(steps, power.number < partner, current, landing, output_at(call, 0), call.elements,
              2 * distance == power.ranks);
      current = output_at(call, 0);
    }
  }
  hand_back(steps, call, power);
  return steps;
}

Schedule halving_doubling_all_reduce(const Call& call) {
  Schedule steps;
  if (call.ranks == 1) steps.copy(input_at(call, 0), output_at(call, 0), call.elements);
  const PowerOfTwo power(call);
  Place current = take_over(steps, call, power);
  if (!power.hands_over() && power.ranks > 1) {
    const Place landing = steps.scratch(call.rank, chunks_of(call, 0, power.ranks / 2, power.ranks).count);
    int first = 0;  // the chunks still summed here: [first, first + 2 * distance)
    for (int distance = power.ranks / 2; distance > 0; distance /= 2) {
      const int partner = power.number ^ distance;
      const bool keeps_lower = power.number < partner;
      const Range lower = chunks_of(call, first, distance, power.ranks);
      const Range upper = chunks_of(call, first + distance, distance, power.ranks);
      const Range kept = keeps_lower ? lower : upper;
      const Range given = keeps_lower ? upper : lower;
      exchange(steps, call, power.rank_of(partner), at(current, given.begin), given.count, landing,
               kept.count);
      combine(steps, keeps_lower, at(current, kept.begin), landing, output_at(call, kept.begin), kept.count,
              distance == 1);
      current = output_at(call, 0);
      if (!keeps_lower) first += distance;
    }
    for (int distance = 1; distance < power.ranks; distance *= 2) {
      const int partner = power.number ^ distance;
      const int theirs = first ^ distance;
      const Range held = chunks_of(call, first, distance, power.ranks);
      const Range missing = chunks_of(call, theirs, distance, power.ranks);
      exchange(steps, call, power.rank_of(partner), output_at(call, held.begin), held.count,
               output_at(call, missing.begin), missing.count);
      first = std::min(first, theirs);
    }
  }
  hand_back(steps, call, power);
  return steps;
}

}  // namespace lockstep::schedule

// scatter_allgather: broadcast of long messages among many ranks. The root scatters the buffer's chunks along
// a binomial tree, and a ring passes them around:
//
//   four ranks, root 0       scatter               all-gather
//   rank 0   c0 c1 c2 c3     -> 2: c2 c3  -> 1: c1    3 rounds, each rank passes one chunk on
//   rank 1                                <- c1
//   rank 2                   <- c2 c3     -> 3: c3
//   rank 3                                <- c3
//
// ceil(log2 p) + p - 1 rounds, about 2n bytes a link, where a tree sends n bytes ceil(log2 p) times.
// Source: Barnett, Gupta, Payne, Shuler, van de Geijn & Watts 1994; Thakur, Rabenseifner & Gropp 2005.
#include <algorithm>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/messages.h"

namespace lockstep::schedule {

Schedule scatter_allgather_broadcast(const Call& call) {
  Schedule steps;
  const int number = wrapped(call.rank - call.root, call.ranks);  // counted from the root
  const auto rank_of = [&](int other) { return wrapped(other + call.root, call.ranks); };
  // The chunks of numbers [first, first + count), as far as there are so many.
  const auto chunks = [&](int first, int count) {
    const Range begin = chunk_of(call.elements, first, call.ranks);
    const Range last = chunk_of(call.elements, std::min(first + count, call.ranks) - 1, call.ranks);
    return Range{begin.begin, last.begin + last.count - begin.begin};
  };

  int below = 1;  // how many numbers this one serves
  while (number == 0 ? below < call.ranks : (number & below) == 0) below *= 2;
  if (number != 0) {
    const Range held = chunks(number, below);
    wait_for(steps, receive_all(steps, call, rank_of(number & (number - 1)), output_at(call, held.begin),
                                held.count));
  }
  std::vector<Posted> rounds;
  for (int bit = below / 2; bit > 0; bit /= 2) {
    if (number + bit >= call.ranks) continue;
    const Range given = chunks(number + bit, bit);
    rounds.push_back(send_all(steps, call, rank_of(number + bit), output_at(call, given.begin), given.count));
  }
  for (const Posted& posted : rounds) wait_for(steps, posted);

  // Who holds more chunks than its own gets those once more: the ring knows no exceptions, and the time is
  // that of the ranks with the least.
  Posted sends;
  for (int round = 0; round < call.ranks - 1; ++round) {
    const Range leaving = chunks(wrapped(number - round, call.ranks), 1);
    const Range arriving = chunks(wrapped(number - round - 1, call.ranks), 1);
    const Posted receives = receive_all(steps, call, rank_of(number - 1 + call.ranks),
                                        output_at(call, arriving.begin), arriving.count);
    wait_for(steps,
             send_all(steps, call, rank_of(number + 1), output_at(call, leaving.begin), leaving.count));
    wait_for(steps, receives);
  }
  return steps;
}

}  // namespace lockstep::schedule

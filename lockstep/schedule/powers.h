// Algorithms that pair ranks need a power of two of them. Where there are more, each of the first few even
// ranks hands its contribution to its odd neighbour and gets the result from it at the end:
//
//   six ranks, four that take part:   0 -> 1    2 -> 3    4    5
//   their numbers:                         0         1    2    3
//
// Neighbours stand next to each other in the order of ranks, so the order of contributions is kept.
// Source: Thakur, Rabenseifner & Gropp 2005.
#pragma once

#include <bit>

#include "lockstep/schedule/messages.h"

namespace lockstep::schedule {

struct PowerOfTwo {
  int ranks;   ///< that take part
  int extra;   ///< that hand over
  int number;  ///< of this rank among those that take part; -1: it hands over

  explicit PowerOfTwo(const Call& call)
      : ranks(static_cast<int>(std::bit_floor(static_cast<unsigned>(call.ranks)))),
        extra(call.ranks - ranks) {
    if (call.rank >= 2 * extra) {
      number = call.rank - extra;
    } else {
      number = call.rank % 2 == 1 ? call.rank / 2 : -1;
    }
  }
  int rank_of(int other) const { return other < extra ? 2 * other + 1 : other + extra; }
  bool hands_over() const { return number < 0; }
  bool takes_over(const Call& call) const { return call.rank < 2 * extra && call.rank % 2 == 1; }
};

/// The first step, on all ranks. Returns where this rank's contribution is from now on: the input, or, with
/// that of its neighbour, the output.
inline Place take_over(Schedule& steps, const Call& call, const PowerOfTwo& power) {
  if (power.hands_over()) {
    wait_for(steps, send_all(steps, call, call.rank + 1, input_at(call, 0), call.elements));
  }
  if (!power.takes_over(call)) return input_at(call, 0);
  const Place landing = steps.scratch(call.rank, call.elements);
  wait_for(steps, receive_all(steps, call, call.rank - 1, landing, call.elements));
  const Place sources[] = {landing, input_at(call, 0)};
  const Place sum = output_at(call, 0);
  steps.reduce(sources, std::span(&sum, 1), call.elements, power.ranks == 1);
  return sum;
}

/// The last step, on all ranks: who handed over gets the result.
inline void hand_back(Schedule& steps, const Call& call, const PowerOfTwo& power) {
  if (power.takes_over(call)) {
    wait_for(steps, send_all(steps, call, call.rank - 1, output_at(call, 0), call.elements));
  }
  if (power.hands_over()) {
    wait_for(steps, receive_all(steps, call, call.rank + 1, output_at(call, 0), call.elements));
  }
}

}  // namespace lockstep::schedule

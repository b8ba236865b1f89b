// What an algorithm costs, counted from its schedules: the figures of docs/algorithms.md.
#pragma once

#include <string>

#include "lockstep/schedule/algorithms.h"

namespace lockstep::schedule {

/// n is the number of elements of the buffer (all_reduce, reduce, broadcast) or of one rank's block (others).
struct Cost {
  int rounds = 0;            ///< the longest chain of waits for a message or for all ranks
  std::size_t messages = 0;  ///< sent by the rank that sends most
  double sent = 0;           ///< of n, by the rank that sends most
  double read = 0;           ///< of n, by copies and reductions of the rank that reads most
  double written = 0;        ///< of n, by those of the rank that writes most
  int roundings = 0;         ///< of halves, at most on the way from a contribution to a result
};

/// For separate input and output, no segments, two pieces through staging memory. REQUIRES: 1 to
/// most_replayed_ranks ranks.
Cost cost_of(const AlgorithmEntry& entry, int ranks);

/// One line: "6 rounds; at most, a rank sends 6 messages (1.5 n), reads 1.5 n, writes 0.75 n; halves are
/// rounded 3 times".
std::string cost(const AlgorithmEntry& entry, int ranks);

}  // namespace lockstep::schedule

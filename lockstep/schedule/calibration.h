// From measured times to the rules of a tuning table. `lockstep bench --calibrate` measures.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/schedule/tuning.h"

namespace lockstep::schedule {

/// How long a call took with one of the algorithms that can do it.
struct Timing {
  Operation operation = Operation::barrier;
  Where where = Where::channels;  ///< of the buffers; of one_shot: those that it was measured with
  std::string algorithm;
  std::uint64_t bytes = 0;  ///< as in a table's limits
  double seconds = 0;
};

/// Algorithms that can be measured where buffers are like this: what select() could take there. `has_nodes`:
/// the ranks' memory does (Call::ranks_per_node).
std::vector<const AlgorithmEntry*> candidates(Operation operation, Where where, bool has_nodes);

/// `table` with rules for `ranks` ranks made of the timings, which replace those that it had for the same
/// operation, place and number of ranks. Of algorithms that are within `tolerance` of the fastest, the choice
/// is the one taken for the size below, else the table's own, so that noise makes no rules. A limit lies
/// halfway (in powers of two) between the sizes around it; slots are taken as long as they are no slower than
/// the best of all others, in the mean of the places where both were measured.
Tuning calibrate(const Tuning& table, int ranks, std::span<const Timing> timings, double tolerance = 0.05);

}  // namespace lockstep::schedule

// Pictures of algorithms, drawn from their schedules, so that they cannot be wrong: what docs/algorithms.md
// shows and `lockstep algorithms` prints.
#pragma once

#include <string>

#include "lockstep/schedule/algorithms.h"

namespace lockstep::schedule {

/// How to read a picture, in a few lines.
extern const char* const picture_signs;

/// A picture of a small call from root 0: a row for each rank, a column for each round. A round ends where
/// what a rank sends depends on what it has received in it, or where ranks wait for all. For example
///
///   rank 0  ->1 b <-1 a +a 01  ->1 a <-1 b
///   rank 1  ->0 a <-0 b +b 10  ->0 b <-0 a
///
/// Every element is drawn as one letter; each rank's chunk or block is one element, two where they go through
/// staging memory, in two pieces. REQUIRES: 1 to most_replayed_ranks ranks.
std::string draw(const AlgorithmEntry& entry, int ranks);

}  // namespace lockstep::schedule

// bruck: short blocks among many ranks, in ceil(log2 p) rounds instead of p - 1.
//
//   all_gather, four ranks; a rank's own block comes first, others follow in the order of ranks from there
//            round 0: 1 block     round 1: 2 blocks
//   rank 0    to 3, from 1         to 2, from 2
//   rank 1    to 0, from 2         to 3, from 3          then the blocks are turned into the order of ranks
//   rank 2    to 1, from 3         to 0, from 0
//   rank 3    to 2, from 0         to 1, from 1
//
//   all_to_all: block i is the one for the rank i steps further on. In round k every block with bit k set in
//   its i is sent 2^k ranks on, all in one message, so after all rounds it has gone i ranks far.
//
// all_gather: n(p-1) bytes in all, like a ring; all_to_all: each block travels as often as its i has bits,
// about n p/2 bytes a round. All copies go through scratch memory.
// Source: Bruck, Ho, Kipnis, Upfal & Weathersby 1997.
#include <vector>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/messages.h"

namespace lockstep::schedule {

Schedule bruck_all_gather(const Call& call) {
  Schedule steps;
  const auto block = [&](int step) { return block_of(call, wrapped(call.rank + step, call.ranks)); };
  // Elements before the block `step` ranks on, as `rank` counts them.
  const auto before = [&](int rank, int step) {
    std::size_t sum = 0;
    for (int other = 0; other < step; ++other) sum += block_of(call, wrapped(rank + other, call.ranks)).count;
    return sum;
  };
  const Place held = steps.scratch(call.rank, before(call.rank, call.ranks));
  steps.copy(input_at(call, 0), held, block(0).count);
  for (int distance = 1; distance < call.ranks; distance *= 2) {
    const int blocks = std::min(distance, call.ranks - distance);
    const int from = wrapped(call.rank + distance, call.ranks);
    const Posted receives =
        receive_all(steps, call, from, at(held, before(call.rank, distance)), before(from, blocks));
    wait_for(steps, send_all(steps, call, wrapped(call.rank - distance, call.ranks), held,
                             before(call.rank, blocks)));
    wait_for(steps, receives);
  }
  for (int step = 0; step < call.ranks; ++step) {
    steps.copy(at(held, before(call.rank, step)), output_at(call, block(step).begin), block(step).count);
  }
  return steps;
}

Schedule bruck_all_to_all(const Call& call) {
  Schedule steps;
  const std::size_t n = call.elements;
  const auto ranks = static_cast<std::size_t>(call.ranks);
  const Place held = steps.scratch(call.rank, n * ranks);
  const auto block = [&](int step) { return at(held, static_cast<std::size_t>(step) * n); };
  for (int step = 0; step < call.ranks; ++step) {
    steps.copy(input_at(call, sent_block(call, wrapped(call.rank + step, call.ranks)).begin), block(step), n);
  }
  const Place packed = steps.scratch(call.rank, n * ((ranks + 1) / 2));
  const Place landing = steps.scratch(call.rank, n * ((ranks + 1) / 2));
  for (int distance = 1; distance < call.ranks; distance *= 2) {
    std::vector<int> moving;
    for (int step = 0; step < call.ranks; ++step) {
      if ((step & distance) != 0) moving.push_back(step);
    }
    for (std::size_t index = 0; index < moving.size(); ++index) {
      steps.copy(block(moving[index]), at(packed, index * n), n);
    }
    const Posted receives =
        receive_all(steps, call, wrapped(call.rank - distance, call.ranks), landing, moving.size() * n);
    wait_for(steps,
             send_all(steps, call, wrapped(call.rank + distance, call.ranks), packed, moving.size() * n));
    wait_for(steps, receives);
    for (std::size_t index = 0; index < moving.size(); ++index) {
      steps.copy(at(landing, index * n), block(moving[index]), n);
    }
  }
  // Block `step` has come from the rank so many steps back.
  for (int step = 0; step < call.ranks; ++step) {
    steps.copy(block(step),
               output_at(call, received_block(call, wrapped(call.rank - step, call.ranks)).begin), n);
  }
  return steps;
}

}  // namespace lockstep::schedule

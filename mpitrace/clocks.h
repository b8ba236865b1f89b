// Hosts' clocks held against rank 0's by messages, as other hosts' are under `lockstep run` (trace/clock_offset.h):
// the first rank of each is asked eight times what it says, and the fastest answer knows best.
#pragma once

#include <cstdint>

#include "mpitrace/events.h"

namespace lockstep::mpitrace {

struct Clocks {
  bool are_several = false;
  std::int64_t ahead_ns = 0;  ///< this rank's, of rank 0's
};
/// Writes exchanges into the header of the first rank of each clock that is not rank 0's. `events`: null where this rank has
/// none; `begins`: at MPI_Init, not at MPI_Finalize. Collective over MPI_COMM_WORLD.
Clocks compare_clocks(Events* events, std::uint64_t clock, int rank, int ranks, bool begins);

}  // namespace lockstep::mpitrace

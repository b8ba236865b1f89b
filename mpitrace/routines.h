// All routines that are counted, and where their sums stand in a table: a routine whose calls have sizes takes a slot for
// each class of sizes, others one. A timed barrier has a slot of its own.
#pragma once

#include <cstddef>
#include <iterator>

#include "lockstep/base/size_bin.h"
#include "lockstep/view/profile/mpi_call.h"

namespace lockstep::mpitrace {

struct Routine {
  const char* name;
  int slot;
  int wait_slot;  ///< -1: no barrier precedes it
  bool has_sizes;
  view::MpiPeers peers;
};

#include "routine_list.inc"

inline constexpr int routine_count = static_cast<int>(std::size(routines));
static_assert(generated_size_bins == base::size_bin_count);

constexpr int slots_of(const Routine& routine) { return routine.has_sizes ? base::size_bin_count : 1; }

}  // namespace lockstep::mpitrace

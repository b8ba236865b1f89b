// Sums for each place in the program that calls MPI: return address and routine.
#pragma once

#include <cstdint>

#include "mpitrace/table.h"

namespace lockstep::mpitrace {

/// Any thread may. The first call from a place also writes down in which file of the process that is.
void count_at_site(Table& table, void* from, int slot, std::uint64_t bytes, std::uint64_t ns) noexcept;

}  // namespace lockstep::mpitrace

// The clock of the record.
#pragma once

#include <cstdint>

namespace lockstep::trace {

/// Nanoseconds of CLOCK_MONOTONIC: comparable between processes of one host. Where the processor's time-stamp
/// counter runs at one rate, it is read instead, and set by the system's clock every half a millisecond: a
/// reading costs half as much and is off by less than 100 ns.
std::uint64_t now_ns();

/// The same for times that only the record wants; 0 in a build without it (LOCKSTEP_RECORD=OFF).
std::uint64_t record_now_ns();

}  // namespace lockstep::trace

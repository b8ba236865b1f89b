// How long a collective takes on a cluster that need not be there: the very schedules that are executed, in virtual time.
//
// The model. A rank goes through its steps one after another. A copy or a sum takes as long as one core needs for it, and
// as long as the host's memory needs for what all its ranks read and write. A message costs both ranks a fixed time and
// one by its length. Between hosts it goes in quanta of at most 64 KiB through the sender's port, uplinks of leaf switches
// where there are some, and the receiver's port, each first come, first served; one quantum of a connection is on its way
// out at a time, so that connections share a port. A quantum's head goes on before its tail has come (cut-through). Messages
// between two ranks arrive in their order. A send is done when what is left of it fits into a socket's buffer.
// In the manner of LogGOPSim (Hoefler, Schneider & Lumsdaine 2010), with queues instead of a gap for each message.
//
// What it leaves out: losses, TCP's windows, other traffic, caches, and ranks that share a core.
#pragma once

#include <cstdint>

#include "lockstep/schedule/algorithms.h"
#include "lockstep/schedule/simulate/topology.h"

namespace lockstep::schedule {

struct Simulated {
  double seconds = 0;                  ///< until the last rank is done; all begin at once
  std::uint64_t messages = 0;          ///< of all ranks, between hosts
  std::uint64_t bytes = 0;             ///< that they carry
  std::uint64_t bytes_of_busiest = 0;  ///< by the port that sends most
  std::uint64_t own_bytes = 0;         ///< of memory that a rank needs beside its buffers, at most
  std::uint64_t steps = 0;
};

/// More steps of all ranks together than this need too much memory.
inline constexpr std::uint64_t most_simulated_steps = 280'000'000;

/// `call` is complete but for its rank. Same call, same answer. Needs 12 bytes a step. Throws Error{invalid_argument}:
/// more than most_simulated_steps, found out early. REQUIRES: `entry` can do the call, and is no exchange.
Simulated simulate(const AlgorithmEntry& entry, const Call& call, std::size_t element_bytes,
                   const Topology& topology);

}  // namespace lockstep::schedule

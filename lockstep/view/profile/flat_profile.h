// The flat profile of a run, one file a rank: which routine was called how often, with how many bytes, for how long. The
// layout is that of mpitrace's mpi_profile files, which users of clusters read and have scripts for; what Lockstep knows
// beyond them follows after it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/size_bin.h"

namespace lockstep::view {

struct CallSums {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ns = 0;  ///< that the program spent in them

  CallSums& operator+=(const CallSums& more);
};

/// All calls of one routine.
struct RoutineSums {
  std::string name = {};
  /// False for routines whose ranks differ in what they send (the v forms) and for those that move nothing: their row has
  /// 0.0 bytes, and they have no block of sizes.
  bool has_sizes = true;
  std::array<CallSums, base::size_bin_count> by_size =
      {};  ///< see base::size_bin(); without sizes all in the first

  CallSums all() const;
};

/// What a rank's process took. Times from the beginning to the end of what is profiled.
struct ProcessCosts {
  std::uint64_t elapsed_ns = 0;
  std::uint64_t user_ns = 0;
  std::uint64_t system_ns = 0;
  std::uint64_t most_resident_bytes = 0;
};

struct RankSums {
  int rank = 0;
  std::uint64_t communication_ns = 0;
  ProcessCosts costs = {};
  std::vector<RoutineSums> routines =
      {};  ///< in the order in which they are to be listed; those never called are left out
};

/// What a rank's file says of all ranks. Ranks are world ranks; of those that have the same, the lowest.
struct RunExtremes {
  int ranks = 0;
  int least_communication = 0;
  int median_communication = 0;
  int most_communication = 0;
  int largest_memory = 0;
  std::uint64_t largest_memory_bytes = 0;
  int longest_elapsed = 0;
  std::uint64_t longest_elapsed_ns = 0;
};

/// One rank's, where it was before the rest is known.
struct RankCosts {
  int rank = 0;
  std::uint64_t communication_ns = 0;
  ProcessCosts costs = {};
};
/// REQUIRES: one at least.
RunExtremes extremes_of(const std::vector<RankCosts>& ranks);

/// Which ranks' files are written: all, or those with the least, the median and the most communication, and rank 0. In
/// ascending order.
std::vector<int> ranks_to_write(const RunExtremes& run, bool all);

/// How the text calls things.
struct ProfileWords {
  std::string rank = "MPI rank";  ///< "Data for MPI rank 0 of 4:"
  std::string period = "Times and statistics from MPI_Init() to MPI_Finalize().";
  std::string routine = "MPI Routine";
  std::string task = "MPI task";  ///< "MPI task 3 of 4 had the maximum communication time."
};

/// The text of a rank's file.
std::string flat_profile(const RankSums& rank, const RunExtremes& run, const ProfileWords& words = {});

}  // namespace lockstep::view

// A rank's numbers out of its table, and the text of its file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/view/profile/flat_profile.h"
#include "mpitrace/table.h"

namespace lockstep::mpitrace {

/// One routine, called from one place.
struct SiteSums {
  std::string file;  ///< of the process: the program or a library
  std::uint64_t offset = 0;
  std::string routine;
  view::CallSums sums = {};
};

/// The barriers before the calls of one routine.
struct WaitSums {
  std::string routine;
  view::CallSums waits = {};
  view::CallSums calls = {};
};

/// In which a thread was.
struct OpenCall {
  std::string routine;
  std::uint64_t begin_ns = 0;  ///< after MPI_Init
};

struct RankProfile {
  view::RankSums sums = {};  ///< times up to the last call; communication with the time in barriers
  int ranks = 0;
  int pid = 0;
  std::string job, run;
  std::vector<WaitSums> waits = {};
  std::vector<OpenCall> open_calls = {};
  std::vector<SiteSums> sites = {};
  std::uint64_t calls_without_site = 0;
};

/// Throws Error{corrupt_data} for what is no table of this version; `what` stands in it.
RankProfile read_profile(std::span<const std::byte> table, const std::string& what);

/// How a rank came to its end.
enum class RankEnd { finalized, early };
std::string profile_text(const RankProfile& rank, const view::RunExtremes& run, RankEnd end);

/// "mpi_profile.JOB.RANK".
std::string profile_name(const std::string& job, int rank);
/// Whole or as it was. Throws Error{system}.
void write_profile(const std::string& path, const std::string& text);

}  // namespace lockstep::mpitrace

// The end of a run: which ranks' files are worth having, and a few lines about the run.
#pragma once

#include <string>

#include "mpitrace/table.h"

namespace lockstep::mpitrace {

struct RunReport {
  int rank = 0;
  int ranks = 1;
  bool all = false;  ///< a file for each rank
  std::string job;
  std::string folder;
};

/// Writes this rank's file if it is one of those, and removes the table's file. Rank 0 says where the files are. Collective
/// over MPI_COMM_WORLD, also where `table` is null: that rank has nothing to tell.
void write_profiles(const RunReport& report, Table* table);

}  // namespace lockstep::mpitrace

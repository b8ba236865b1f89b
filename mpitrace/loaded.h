// Which MPI this process has.
#pragma once

#include <string>
#include <vector>

#include "mpitrace/family.h"

namespace lockstep::mpitrace {

struct LoadedMpi {
  Family family;
  std::string path;
};
/// In the order in which they were loaded.
std::vector<LoadedMpi> loaded_mpis();

/// Of our library for programs of `family`, beside the one that runs.
std::string path_of_library(Family family);
/// Of the one that runs.
std::string path_of_this_library();

}  // namespace lockstep::mpitrace

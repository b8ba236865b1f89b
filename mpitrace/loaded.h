// Which MPI this process has.
#pragma once

#include <string>

#include "mpitrace/family.h"

namespace lockstep::mpitrace {

using mpi::loaded_mpis;
using mpi::LoadedMpi;

/// Of our library for programs of `family`, beside the one that runs.
std::string path_of_library(Family family);
/// Of the one that runs.
std::string path_of_this_library();

}  // namespace lockstep::mpitrace

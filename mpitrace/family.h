// Which of our libraries is for which MPI.
#pragma once

#include <string>

#include "lockstep/base/mpi_family.h"

namespace lockstep::mpitrace {

using mpi::Family;
using mpi::family_named;
using mpi::family_of_library;
using mpi::name_of;
using mpi::title_of;

/// "liblockstep_mpitrace_openmpi.so".
inline std::string library_for(Family family) {
  return "liblockstep_mpitrace_" + std::string(name_of(family)) + ".so";
}

}  // namespace lockstep::mpitrace

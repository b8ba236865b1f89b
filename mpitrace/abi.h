// The types and constants of the MPI that this build is for. There is one build for each ABI, because a program's handles
// are what its mpi.h made of them.
#pragma once

#if defined(LOCKSTEP_MPITRACE_OPENMPI)
#include "mpitrace/abi/openmpi.h"
#elif defined(LOCKSTEP_MPITRACE_MPICH)
#include "mpitrace/abi/mpich.h"
#else
#include "mpitrace/abi/standard.h"
#endif

namespace lockstep::mpitrace {

struct MPI_Status;               // only passed on
using AnyFunction = void (*)();  // that a program hands to MPI

}  // namespace lockstep::mpitrace

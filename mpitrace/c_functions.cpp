// MPI's names for C: each is counted and handed to PMPI's.
#include "mpitrace/functions.h"

namespace lockstep::mpitrace {

#include "c_functions.inc"

}  // namespace lockstep::mpitrace

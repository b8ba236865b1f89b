// MPI_IN_PLACE is a variable in Fortran, and which one each MPI says otherwise.
#pragma once

namespace lockstep::mpitrace {

bool is_fortran_in_place(const void* buffer);

}  // namespace lockstep::mpitrace

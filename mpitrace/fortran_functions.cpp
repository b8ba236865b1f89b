// MPI's names for Fortran, as compilers write them: mpi_send_, mpi_send, mpi_send__, MPI_SEND, and of `use mpi_f08`
// mpi_send_f08_ and mpi_send_f08ts_. Open MPI's functions behind them call PMPI's for C, so that the others of ours would
// not see them. Every argument is an address, and is handed on as it is; so are the lengths of texts behind them. What MPI's
// function leaves as its result is returned: a library may have a function of its own with such a name and no underscore.
#include "mpitrace/functions.h"
#include "mpitrace/in_place.h"

namespace lockstep::mpitrace {
namespace {

int fortran_int(const void* argument) { return *static_cast<const int*>(argument); }
MPI_Datatype fortran_type(const void* argument) { return type_of_fortran(fortran_int(argument)); }
MPI_Comm fortran_comm(const void* argument) { return comm_of_fortran(fortran_int(argument)); }

bool is_in_place(Form form, const void* argument) {
  // A descriptor's first word is the address that it describes.
  return is_fortran_in_place(form == Form::f08ts ? *static_cast<const void* const*>(argument) : argument);
}

}  // namespace

#include "fortran_functions.inc"

}  // namespace lockstep::mpitrace

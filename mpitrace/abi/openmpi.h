// What programs for Open MPI 4 and 5 (libmpi.so.40) pass to MPI: handles are pointers to objects, and those that are
// there from the start are variables of the library.
#pragma once

#include <cstddef>

#include "mpitrace/real.h"

namespace lockstep::mpitrace {

using MPI_Comm = struct Communicator*;
using MPI_Datatype = struct Datatype*;
using MPI_Group = struct Group*;
using MPI_Op = struct Op*;
using MPI_Win = struct Window*;
using MPI_File = struct File*;
using MPI_Info = struct Info*;
using MPI_Request = struct Request*;
using MPI_Errhandler = struct ErrorHandler*;
using MPI_Message = struct Message*;
using MPI_Aint = std::ptrdiff_t;
using MPI_Offset = long long;
using MPI_Count = long long;

inline constexpr Family our_family = Family::openmpi;
inline constexpr int mpi_any_source = -1;
inline constexpr int mpi_proc_null = -2;
inline constexpr int mpi_root = -4;
inline constexpr std::size_t mpi_in_place = 1;  // as an address

inline MPI_Comm comm_world() { return static_cast<MPI_Comm>(require_variable("ompi_mpi_comm_world")); }
inline MPI_Comm comm_null() { return static_cast<MPI_Comm>(require_variable("ompi_mpi_comm_null")); }
inline MPI_Datatype byte_type() { return static_cast<MPI_Datatype>(require_variable("ompi_mpi_byte")); }
inline MPI_Datatype datatype_null() {
  static const auto null = static_cast<MPI_Datatype>(require_variable("ompi_mpi_datatype_null"));
  return null;
}

inline MPI_Datatype type_of_fortran(int handle) {
  static const auto convert = pmpi<MPI_Datatype(int)>("PMPI_Type_f2c");
  return convert(handle);
}
inline MPI_Comm comm_of_fortran(int handle) {
  static const auto convert = pmpi<MPI_Comm(int)>("PMPI_Comm_f2c");
  return convert(handle);
}

}  // namespace lockstep::mpitrace

// What programs for MPICH, Intel MPI and others of that family (libmpi.so.12) pass to MPI: handles are numbers, the same
// in C and in Fortran.
#pragma once

#include <cstddef>

#include "mpitrace/real.h"

namespace lockstep::mpitrace {

using MPI_Comm = int;
using MPI_Datatype = int;
using MPI_Group = int;
using MPI_Op = int;
using MPI_Win = int;
using MPI_File = struct File*;
using MPI_Info = int;
using MPI_Request = int;
using MPI_Errhandler = int;
using MPI_Message = int;
using MPI_Aint = long;
using MPI_Offset = long long;
using MPI_Count = long long;

inline constexpr Family our_family = Family::mpich;
inline constexpr int mpi_any_source = -2;
inline constexpr int mpi_proc_null = -1;
inline constexpr int mpi_root = -3;
inline constexpr std::size_t mpi_in_place = ~std::size_t{0};  // as an address

inline MPI_Comm comm_world() { return 0x44000000; }
inline MPI_Comm comm_null() { return 0x04000000; }
inline MPI_Datatype byte_type() { return 0x4c00010d; }
inline MPI_Datatype datatype_null() { return 0x0c000000; }

inline MPI_Datatype type_of_fortran(int handle) { return handle; }
inline MPI_Comm comm_of_fortran(int handle) { return handle; }

}  // namespace lockstep::mpitrace

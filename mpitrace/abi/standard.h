// What programs for MPI 5's standard ABI (libmpi_abi.so.1) pass to MPI: handles are pointers, and those that are there
// from the start are small numbers.
#pragma once

#include <cstddef>
#include <cstdint>

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
using MPI_Aint = std::intptr_t;
using MPI_Offset = std::int64_t;
using MPI_Count = std::int64_t;

inline constexpr Family our_family = Family::standard;
inline constexpr int mpi_any_source = -1;
inline constexpr int mpi_proc_null = -3;
inline constexpr int mpi_root = -4;
inline constexpr std::size_t mpi_in_place = 1;  // as an address

template <class Handle>
Handle predefined(std::uintptr_t number) {
  return reinterpret_cast<Handle>(number);
}
inline MPI_Comm comm_world() { return predefined<MPI_Comm>(0x101); }
inline MPI_Comm comm_null() { return predefined<MPI_Comm>(0x100); }
inline MPI_Datatype byte_type() { return predefined<MPI_Datatype>(0x247); }
inline MPI_Datatype datatype_null() { return predefined<MPI_Datatype>(0x200); }

inline MPI_Datatype type_of_fortran(int handle) {
  static const auto convert = pmpi<MPI_Datatype(int)>("PMPI_Type_fromint");
  return convert(handle);
}
inline MPI_Comm comm_of_fortran(int handle) {
  static const auto convert = pmpi<MPI_Comm(int)>("PMPI_Comm_fromint");
  return convert(handle);
}

}  // namespace lockstep::mpitrace

// Compiled with the mpi.h of an MPI: our declarations are its own, up to const behind pointers, and so are the constants that
// we know. Its exit code is the number of constants that are not.
#include <mpi.h>

#include <cstdint>
#include <type_traits>

#include "mpitrace/abi.h"

namespace ours = lockstep::mpitrace;

template <class T>
struct Plain {
  using type = T;
};
template <class T>
struct Plain<const T> : Plain<T> {};
template <class T>
struct Plain<T*> {
  using type = typename Plain<T>::type*;
};
template <class T, std::size_t n>
struct Plain<const T[n]> : Plain<T[n]> {};
template <class Function>
struct Signature;
template <class Result, class... Arguments>
struct Signature<Result(Arguments...)> {
  using type = Result(typename Plain<Arguments>::type...);
};

#define AGREES(name, ...) \
  static_assert(std::is_same_v<Signature<decltype(name)>::type, Declared<__VA_ARGS__>::type>, #name);
template <class Result, class... Arguments>
struct Declared : Signature<Result(Arguments...)> {};
#include "agreement.inc"

#define SAME_KIND(name)                                                                               \
  static_assert(                                                                                      \
      sizeof(name) == sizeof(ours::name) && std::is_pointer_v<name> == std::is_pointer_v<ours::name>, \
      #name);
SAME_KIND(MPI_Comm)
SAME_KIND(MPI_Datatype)
SAME_KIND(MPI_Group)
SAME_KIND(MPI_Op)
SAME_KIND(MPI_Win)
SAME_KIND(MPI_File)
SAME_KIND(MPI_Info)
SAME_KIND(MPI_Request)
SAME_KIND(MPI_Errhandler)
SAME_KIND(MPI_Message)
SAME_KIND(MPI_Aint)
SAME_KIND(MPI_Offset)
SAME_KIND(MPI_Count)
#ifndef LOCKSTEP_MPITRACE_ABI  // where not each has it
static_assert(std::is_same_v<MPI_Fint, int>);
#endif
static_assert(ours::mpi_proc_null == MPI_PROC_NULL && ours::mpi_root == MPI_ROOT &&
              ours::mpi_any_source == MPI_ANY_SOURCE);

template <class Theirs, class Ours>
int differs(Theirs theirs, Ours ours) {
  return (std::uintptr_t)theirs != (std::uintptr_t)ours;
}

int main() {
  int count = differs(MPI_IN_PLACE, ours::mpi_in_place);
#ifndef LOCKSTEP_MPITRACE_OPENMPI  // whose handles are variables that are found by name
  count += differs(MPI_COMM_WORLD, ours::comm_world()) + differs(MPI_COMM_NULL, ours::comm_null());
  count += differs(MPI_BYTE, ours::byte_type()) + differs(MPI_DATATYPE_NULL, ours::datatype_null());
#endif
  return count;
}

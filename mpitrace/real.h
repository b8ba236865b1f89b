// MPI's own functions, behind ours. They are looked up in the process when first needed, because a hard link to an MPI
// would bring one into programs that have none, or a second one.
#pragma once

#include <atomic>

#include "mpitrace/family.h"
#include "mpitrace/routines.h"

namespace lockstep::mpitrace {

/// In which of its names a routine was called; large: with large counts (MPI_Send_c). The bindings of `use mpi_f08` differ from those of `use mpi` in what a
/// buffer is, and have names of their own; those with ts pass descriptors of arrays.
enum class Form { c, large, fortran, f08, f08ts };
inline constexpr int form_count = 5;

/// Null: the process has none. Also looks in an MPI that was loaded for one plug-in alone (as mpi4py's is).
void* find(const char* name);

/// A variable of MPI's, which may lie in the program: where that names one, the linker puts a copy there that the library
/// then uses, too.
void* require_variable(const char* name);

/// Without one it says so and ends the process: there is nothing that could be called instead.
void* require(const char* name);

template <class Function>
Function* pmpi(const char* name) {
  return reinterpret_cast<Function*>(require(name));
}

inline std::atomic<void*> found_functions[form_count][routine_count];
void* look_up(Form form, int routine);
inline void* real(Form form, int routine) {
  void* function = found_functions[static_cast<int>(form)][routine].load(std::memory_order_relaxed);
  return function != nullptr ? function : look_up(form, routine);
}

}  // namespace lockstep::mpitrace

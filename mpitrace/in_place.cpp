#include "mpitrace/in_place.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace lockstep::mpitrace {
namespace {

struct Addresses {
  // Open MPI's common block, in which the program's and the library's are one; MPICH's variable of mpi_f08.
  std::array<const void*, 5> known = {};
  // MPICH writes down where the program's is, when that first calls it.
  const void* const* noted = nullptr;
};

Addresses look_up() {
  Addresses found;
  std::size_t count = 0;
  for (const char* name : {"mpi_fortran_in_place_", "mpi_fortran_in_place", "mpi_fortran_in_place__",
                           "MPI_FORTRAN_IN_PLACE", "MPIR_F08_MPI_IN_PLACE"})
    found.known[count++] = ::dlsym(RTLD_DEFAULT, name);
  found.noted = static_cast<const void* const*>(::dlsym(RTLD_DEFAULT, "MPIR_F_MPI_IN_PLACE"));
  return found;
}

}  // namespace

bool is_fortran_in_place(const void* buffer) {
  static const Addresses addresses = look_up();
  if (buffer == nullptr) return false;
  if (addresses.noted != nullptr && *addresses.noted == buffer) return true;
  return std::ranges::find(addresses.known, buffer) != addresses.known.end();
}

}  // namespace lockstep::mpitrace

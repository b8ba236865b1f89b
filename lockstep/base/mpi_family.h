// MPIs of one family understand one another's programs, and a program of one is lost under the library of another. Which
// it is, the name of the library says that a program is linked with.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::mpi {

enum class Family { openmpi, mpich, standard };

/// "openmpi", "mpich", "abi": as they stand in the names of our libraries.
std::string_view name_of(Family family);
/// "Open MPI", "MPICH or Intel MPI", "MPI's standard ABI".
std::string_view title_of(Family family);
/// Of such a name; nullopt for another.
std::optional<Family> family_named(std::string_view name);

/// By the name of a library's file ("libmpi.so.40", with or without a folder); nullopt if it is no MPI.
std::optional<Family> family_of_library(std::string_view file);
/// "libmpi.so.40": what programs of the family are linked with, the most usual name first.
std::vector<std::string> libraries_of(Family family);

struct LoadedMpi {
  Family family;
  std::string path;
};
/// Those that this process has, in the order in which they were loaded.
std::vector<LoadedMpi> loaded_mpis();

/// Whether the program has initialised its MPI; also once it has finalised it.
bool has_begun();

}  // namespace lockstep::mpi

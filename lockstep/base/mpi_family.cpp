#include "lockstep/base/mpi_family.h"

#include <dlfcn.h>
#include <link.h>

namespace lockstep::mpi {

std::string_view name_of(Family family) {
  switch (family) {
    case Family::openmpi: return "openmpi";
    case Family::mpich: return "mpich";
    case Family::standard: return "abi";
  }
  return "";
}

std::string_view title_of(Family family) {
  switch (family) {
    case Family::openmpi: return "Open MPI";
    case Family::mpich: return "MPICH or Intel MPI";
    case Family::standard: return "MPI's standard ABI";
  }
  return "";
}

std::optional<Family> family_named(std::string_view name) {
  for (const Family family : {Family::openmpi, Family::mpich, Family::standard}) {
    if (name_of(family) == name) return family;
  }
  return std::nullopt;
}

std::optional<Family> family_of_library(std::string_view file) {
  const std::string_view name = file.substr(file.rfind('/') + 1);  // npos + 1 is 0
  if (!name.starts_with("libmpi")) return std::nullopt;
  const std::size_t end = name.find(".so.");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view library = name.substr(0, end);
  const std::string_view version = name.substr(end + 4, name.find('.', end + 4) - end - 4);
  if (library == "libmpi_abi") return Family::standard;
  if ((library == "libmpi" && version == "40") || library == "libmpi_ibm") return Family::openmpi;
  // Also Cray's libmpi_cray, libmpi_gnu_123 and so on; not the libraries beside, which no program has alone.
  const bool is_beside = library.starts_with("libmpifort") || library.starts_with("libmpicxx") ||
                         library.starts_with("libmpichfort") || library.starts_with("libmpichcxx");
  if (version == "12" && !is_beside) return Family::mpich;
  return std::nullopt;
}

std::vector<std::string> libraries_of(Family family) {
  switch (family) {
    case Family::openmpi: return {"libmpi.so.40"};
    case Family::mpich: return {"libmpi.so.12", "libmpich.so.12"};
    case Family::standard: return {"libmpi_abi.so.1"};
  }
  return {};
}

std::vector<LoadedMpi> loaded_mpis() {
  std::vector<LoadedMpi> found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* all) {
        const std::string path = object->dlpi_name == nullptr ? "" : object->dlpi_name;
        if (const auto family = family_of_library(path))
          static_cast<std::vector<LoadedMpi>*>(all)->push_back({*family, path});
        return 0;
      },
      &found);
  return found;
}

bool has_begun() {
  const auto initialized = reinterpret_cast<int (*)(int*)>(::dlsym(RTLD_DEFAULT, "MPI_Initialized"));
  int flag = 0;
  return initialized != nullptr && initialized(&flag) == 0 && flag != 0;
}

}  // namespace lockstep::mpi

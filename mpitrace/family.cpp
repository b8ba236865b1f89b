#include "mpitrace/family.h"

namespace lockstep::mpitrace {

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

std::string library_for(Family family) {
  return "liblockstep_mpitrace_" + std::string(name_of(family)) + ".so";
}

}  // namespace lockstep::mpitrace

#include "mpi_peer.h"

#include <algorithm>
#include <cstdlib>

namespace lockstep::testing {

std::filesystem::path MpiPeer::home() const {
  const char* const peers = std::getenv("LOCKSTEP_PEERS");
  return std::filesystem::path(peers == nullptr ? "/nonexistent" : peers) / peer;
}

std::string MpiPeer::in_home(std::string word) const {
  for (std::size_t at = word.find("{}"); at != std::string::npos; at = word.find("{}"))
    word.replace(at, 2, home());
  return word;
}

Variables MpiPeer::variables() const {
  const char* const path = std::getenv("PATH");
  const std::string programs = (home() / launcher).parent_path();
  Variables all = {{"PATH", programs + ":" + (path == nullptr ? "" : path)}};
  if (peer == "impi") all.insert(all.end(), {{"I_MPI_ROOT", home()}, {"I_MPI_FABRICS", "shm"}});
  if (peer == "impi" || peer.starts_with("debian"))
    all.emplace_back("LD_LIBRARY_PATH",
                     in_home(libraries + ":{}/usr/lib/x86_64-linux-gnu:{}/lib/x86_64-linux-gnu"));
  if (peer == "debian-openmpi")
    all.insert(all.end(), {{"OPAL_PREFIX", home() / "usr"},
                           {"PMIX_INSTALL_PREFIX", in_home("{}/usr/lib/x86_64-linux-gnu/pmix2")},
                           // Its plug-ins for networks need more of the distribution.
                           {"OMPI_MCA_mca_base_component_show_load_errors", "0"},
                           {"OMPI_MCA_pml", "ob1"},
                           {"OMPI_MCA_btl", "self,vader"}});
  return all;
}

void PrintTo(const MpiPeer& mpi, std::ostream* out) { *out << mpi.peer; }

const std::vector<MpiPeer>& all_mpis() {
  static const std::string debian = "{}/usr/lib/x86_64-linux-gnu";
  static const std::vector<MpiPeer> all = {
      {"openmpi",
       "openmpi",
       "bin/mpirun",
       {"--allow-run-as-root", "--oversubscribe"},
       "{}/include",
       "{}/lib"},
      {"mpich", "mpich", "bin/mpiexec", {}, "{}/include", "{}/lib"},
      {"impi",
       "mpich",
       "bin/mpiexec.hydra",
       {},
       "{}/include",
       "{}/lib",
       {"-I{}/include/mpi/gfortran/11.1.0", "-I{}/include", "-lmpifort"}},
      {"debian-openmpi",
       "openmpi",
       "usr/bin/mpirun.openmpi",
       {"--allow-run-as-root", "--oversubscribe"},
       debian + "/openmpi/include",
       debian + "/openmpi/lib",
       {"-I" + debian + "/openmpi/lib", "-I" + debian + "/fortran/gfortran-mod-15/openmpi", "-lmpi_usempif08",
        "-lmpi_usempi_ignore_tkr", "-lmpi_mpifh"}},
      {"debian-mpich",
       "mpich",
       "usr/bin/mpiexec.hydra",
       {},
       debian + "/mpich/include",
       debian,
       {"-I" + debian + "/fortran/gfortran-mod-15/mpich", "-I" + debian + "/mpich/include", "-lmpichfort"},
       {"-lmpich"}},
  };
  return all;
}

std::string name_of(const MpiPeer& mpi) {
  std::string name = mpi.peer;
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace lockstep::testing

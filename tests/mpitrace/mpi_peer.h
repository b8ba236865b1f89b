// The MPIs that these tests compile with and run under, as script/bootstrap --peers installs them.
#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace lockstep::testing {

struct MpiPeer {
  std::string peer;
  std::string family;  ///< as our library's name has it
  std::string launcher;
  std::vector<std::string> launcher_words = {};
  std::string include, libraries;               ///< folders
  std::vector<std::string> fortran_words = {};  ///< of gfortran beside; empty: it has no Fortran
  std::vector<std::string> link_words = {"-lmpi"};

  std::filesystem::path home() const;
  bool is_installed() const { return std::filesystem::exists(home() / launcher); }
  /// A word with its "{}" being the folder of the peer.
  std::string in_home(std::string word) const;
  /// To run its programs.
  Variables variables() const;
};
void PrintTo(const MpiPeer& mpi, std::ostream* out);

const std::vector<MpiPeer>& all_mpis();
std::string name_of(const MpiPeer& mpi);  ///< for a test: "debian_openmpi"

}  // namespace lockstep::testing

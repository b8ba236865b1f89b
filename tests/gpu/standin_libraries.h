// Where the stand-ins for NVIDIA's libraries are, for programs that are not linked with them: a folder for LD_LIBRARY_PATH.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace lockstep::testing {

inline std::string standin_libraries() {
  return (std::filesystem::path(std::getenv("LOCKSTEP_BINARY_DIR")) / "standin").string();
}

}  // namespace lockstep::testing

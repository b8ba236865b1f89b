#include "libraries.h"

#include <system_error>

#include "lockstep/base/error.h"

namespace fs = std::filesystem;

fs::path find_library(const std::string& name) {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* folder : {LOCKSTEP_LIBRARIES, "../lib"}) {
    fs::path file = (here / folder / name).lexically_normal();
    if (fs::exists(file, error)) return file;
  }
  lockstep::throw_invalid_argument(name + " is not in " + (here / "../lib").lexically_normal().string() +
                                   ": it was not built or not installed");
}

std::string preload_of(const fs::path& library, const char* others) {
  return library.string() + (others == nullptr || *others == '\0' ? "" : ":" + std::string(others));
}

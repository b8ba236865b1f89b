#include "mpitrace/loaded.h"

#include <dlfcn.h>

namespace lockstep::mpitrace {

std::string path_of_this_library() {
  Dl_info info{};
  const bool is_known = ::dladdr(reinterpret_cast<void*>(&path_of_this_library), &info) != 0;
  return is_known && info.dli_fname != nullptr ? info.dli_fname : "";
}

std::string path_of_library(Family family) {
  const std::string own = path_of_this_library();
  return own.substr(0, own.rfind('/') + 1) + library_for(family);
}

}  // namespace lockstep::mpitrace

#include "mpitrace/loaded.h"

#include <dlfcn.h>
#include <link.h>

namespace lockstep::mpitrace {

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

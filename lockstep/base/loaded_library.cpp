#include "lockstep/base/loaded_library.h"

#include <dlfcn.h>

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string why() {
  const char* const text = ::dlerror();
  return text != nullptr ? text : "the loader does not say why";
}

}  // namespace

LoadedLibrary::LoadedLibrary(std::string file, const std::string& remedy)
    : file_(std::move(file)), handle_(::dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    throw Error(ErrorCode::unsupported, "cannot load " + file_ + ": " + why() + "; " + remedy);
  }
}

void* LoadedLibrary::symbol(const char* name) const {
  void* const found = ::dlsym(handle_, name);
  if (found == nullptr) {
    throw Error(ErrorCode::unsupported, file_ + " has no " + name + " (" + why() + "): it is too old");
  }
  return found;
}

}  // namespace lockstep

#include "mpitrace/real.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

#include "mpitrace/abi.h"
#include "mpitrace/loaded.h"
#include "mpitrace/say.h"

namespace lockstep::mpitrace {
namespace {

/// In the order in which a Fortran compiler is likely to write them.
std::vector<std::string> names_in(Form form, const std::string& name) {
  if (form == Form::c) return {"P" + name};
  if (form == Form::large) return {"P" + name + "_c"};
  std::string lower = name, upper = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  if (form == Form::f08) return {lower + "_f08_"};
  if (form == Form::f08ts) return {lower + "_f08ts_"};
  return {lower + "_", lower, lower + "__", upper};
}

/// A program that loads an MPI only when it runs (Python) is seen here first; its handles are not what we take them for.
void require_our_family() {
  const std::vector<LoadedMpi> mpis = loaded_mpis();
  const bool has_ours =
      std::ranges::any_of(mpis, [](const LoadedMpi& mpi) { return mpi.family == our_family; });
  if (has_ours || mpis.empty()) return;
  say_once_per_job("this program uses " + std::string(title_of(mpis.front().family)) + " (" +
                   mpis.front().path + "), this library is for " + std::string(title_of(our_family)) +
                   "; preload " + path_of_library(mpis.front().family) + " instead. The program ends here");
  ::_exit(1);
}

}  // namespace

void* find(const char* name) {
  if (void* found = ::dlsym(RTLD_NEXT, name)) return found;
  for (const LoadedMpi& mpi : loaded_mpis()) {
    void* const library = ::dlopen(mpi.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    void* const found = library == nullptr ? nullptr : ::dlsym(library, name);
    if (library != nullptr) ::dlclose(library);  // it stays: the program has it open
    if (found != nullptr) return found;
  }
  return nullptr;
}

void* require(const char* name) {
  if (void* found = find(name)) return found;
  say("the MPI of this process has no " + std::string(name));
  std::abort();
}

void* require_variable(const char* name) {
  if (void* found = ::dlsym(RTLD_DEFAULT, name)) return found;
  return require(name);
}

void* look_up(Form form, int routine) {
  static const bool once = (require_our_family(), true);
  (void)once;
  const std::vector<std::string> names = names_in(form, routines[routine].name);
  for (const std::string& name : names) {
    void* const found = find(name.c_str());
    if (found == nullptr) continue;
    found_functions[static_cast<int>(form)][routine].store(found, std::memory_order_relaxed);
    return found;
  }
  return require(names.front().c_str());
}

}  // namespace lockstep::mpitrace

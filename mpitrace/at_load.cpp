// Before main: a program of another family than this build's must not come to our functions, which would take its handles
// for what they are not. It is started once more without us, and runs unprofiled.
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "mpitrace/abi.h"
#include "mpitrace/loaded.h"
#include "mpitrace/say.h"

namespace lockstep::mpitrace {
namespace {

constexpr std::string_view preload = "LD_PRELOAD=";

/// What is left of the list without the libraries whose file has our name; separators are blanks and colons.
std::string without_us(std::string_view list) {
  const std::string own = library_for(our_family);
  std::string left;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find_first_of(" :"), list.size());
    const std::string_view one = list.substr(0, end);
    if (!one.empty() && one.substr(one.rfind('/') + 1) != own)
      left += (left.empty() ? "" : ":") + std::string(one);
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return left;
}

void start_again_without_us(char** words, char** environment) {
  std::vector<std::string> entries;
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(preload)) {
      entries.emplace_back(text);
    } else if (const std::string left = without_us(text.substr(preload.size())); !left.empty()) {
      entries.push_back(std::string(preload) + left);
    }
  }
  std::vector<char*> pointers;
  for (std::string& entry : entries) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  ::execve("/proc/self/exe", words, pointers.data());
}

// glibc passes main's arguments to the constructors of libraries.
[[gnu::constructor]] void look_at_the_program(int, char** words, char** environment) noexcept {
  try {
    const std::vector<LoadedMpi> mpis = loaded_mpis();
    if (mpis.empty() ||
        std::ranges::any_of(mpis, [](const LoadedMpi& mpi) { return mpi.family == our_family; }))
      return;
    const Family family = mpis.front().family;
    const std::string what = "this program is for " + std::string(title_of(family)) + ", " +
                             library_for(our_family) + " is for " + std::string(title_of(our_family)) +
                             "; preload " + path_of_library(family) + " instead.";
    say_once_per_job(what + " It runs unprofiled");
    start_again_without_us(words, environment);
    say("it could not be started again without this library, and ends");
  } catch (...) {
    say("no memory at the start");
  }
  ::_exit(127);
}

}  // namespace
}  // namespace lockstep::mpitrace

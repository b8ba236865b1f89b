#include "lockstep/launch/program.h"

#include <cstdlib>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::launch {
namespace {

enum class Found { nothing, folder, file, program };

Found look(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return Found::nothing;
  if (S_ISDIR(status.st_mode)) return Found::folder;
  return S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0 ? Found::program : Found::file;
}

Program judge(const std::string& path) {
  switch (look(path)) {
    case Found::program: return {.path = path};
    case Found::folder: return {.problem = path + " is a folder, not a program", .exit_code = cannot_execute};
    case Found::file:
      return {.problem = path + " is not executable; run chmod +x on it, or name its interpreter (python3 " +
                         path + ")",
              .exit_code = cannot_execute};
    case Found::nothing: break;
  }
  return {.problem = path + ": there is no such program", .exit_code = 127};
}

}  // namespace

Program find_program(const std::string& name, const std::string& search_path) {
  if (name.empty()) return {.problem = "the program's name is empty", .exit_code = 127};
  if (name.find('/') != std::string::npos) return judge(name);
  for (std::size_t begin = 0; begin <= search_path.size();) {
    const std::size_t end = std::min(search_path.find(':', begin), search_path.size());
    const std::string folder = search_path.substr(begin, end - begin);
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (look(path) == Found::program) return {.path = path};
    begin = end + 1;
  }
  std::string problem = name + ": there is no such program in PATH";
  if (look(name) == Found::program || look(name) == Found::file) problem += "; did you mean ./" + name + "?";
  return {.problem = problem, .exit_code = 127};
}

std::string search_path() {
  const char* path = std::getenv("PATH");
  return path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
}

}  // namespace lockstep::launch

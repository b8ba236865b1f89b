// Whether a program can run is found out before anything is started: four ranks that fail to start say it
// four times, and less clearly.
#pragma once

#include <string>

namespace lockstep::launch {

/// As shells have it; what is not there is 127, and ssh's own failures are 255.
inline constexpr int cannot_execute = 126;

struct Program {
  std::string path = {};     ///< what to execute
  std::string problem = {};  ///< empty, or one line saying why it cannot run and what to do
  int exit_code = 0;         ///< as shells have it: 127 not found, cannot_execute: found but no program
};

/// PATH, or what shells have where it is not set.
std::string search_path();

/// Looks for `name` as a shell would: in the folders of `search_path` unless it has a '/'.
Program find_program(const std::string& name, const std::string& search_path);

}  // namespace lockstep::launch

// Most programs are started by another one: a script by the interpreter in its first line, a linked program
// by its loader. Where that one is missing, the system says "No such file or directory" of a program that is
// there.
#pragma once

#include <optional>
#include <string>

namespace lockstep::launch {

struct Interpreter {
  std::string path = {};
  bool of_script = false;  ///< named in a script's first line; else a linked program's loader
};

/// What the system would start to run the file at `path`; nullopt where it needs nothing, or cannot be read.
std::optional<Interpreter> interpreter_of(const std::string& path);

/// One line for the user: why execve(2) of `path`, which exists, failed with `error_number`, and what to do.
std::string explain_exec_failure(const std::string& path, int error_number);

}  // namespace lockstep::launch

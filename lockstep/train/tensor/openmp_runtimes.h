// Two OpenMP runtimes in one process (libtorch's libgomp beside a libiomp5 that another library brings) start
// threads that do not know of each other and fight for the rank's cores. Nobody notices but by the time it
// takes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Paths of the files that this process has loaded: its program and its shared libraries.
std::vector<std::string> loaded_files();

/// What is wrong and what to do, naming the files, if more than one of them is an OpenMP runtime.
std::optional<std::string> find_two_openmp_runtimes(std::span<const std::string> files);

/// Logs a warning if this process has two, the first time that it is called; none where OMP_NUM_THREADS is 1.
void warn_of_two_openmp_runtimes();

}  // namespace lockstep

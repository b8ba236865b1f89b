// What another program says.
#pragma once

#include <string>
#include <vector>

namespace lockstep::mpitrace {

/// All that it writes to stdout; "" if it cannot be started. Its stderr is dropped, and it is not profiled itself.
std::string output_of(std::vector<std::string> words);

}  // namespace lockstep::mpitrace

// Which function and line of the program an address is, as addr2line says it: debuggers' information is not read here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::mpitrace {

/// A file of the process and an address in it, behind a call. For each "solve at solve.c:12", or what is known of that:
/// without addr2line the function alone, where this process has it, or "?".
std::map<std::pair<std::string, std::uint64_t>, std::string> source_lines(
    const std::vector<std::pair<std::string, std::uint64_t>>& places);

}  // namespace lockstep::mpitrace

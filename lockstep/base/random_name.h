// Names that nobody else has, and nobody guesses.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::base {

/// `bytes` from the system's generator as hexadecimal digits, two for each; at most 32.
std::string random_name(std::size_t bytes = 8);

}  // namespace lockstep::base

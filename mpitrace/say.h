// Lines on stderr, which is all that the profiled program's user sees of us beside the files.
#pragma once

#include <string>

namespace lockstep::mpitrace {

/// "lockstep mpitrace: TEXT", in one piece.
void say(const std::string& text) noexcept;

/// Only where the launcher's variables do not say that this is another rank than 0: for what is known before MPI_Init.
void say_once_per_job(const std::string& text) noexcept;

}  // namespace lockstep::mpitrace

// Whether this build keeps a record (LOCKSTEP_RECORD). For the sources of trace/ that CMake tells so, and no others.
#pragma once

namespace lockstep::trace {

#ifdef LOCKSTEP_WITHOUT_RECORD
constexpr bool record_is_on = false;
#else
constexpr bool record_is_on = true;
#endif

}  // namespace lockstep::trace

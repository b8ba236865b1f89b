// What libtorch's own profiler sees, in our timeline: each operator that a process calls is a range there, on the same clock as
// steps, calls and the program's ranges, in the row of its thread.
#pragma once

namespace lockstep {

/// From now on, where LOCKSTEP_TIMELINE_OPERATORS=1: operators ("aten::addmm") and functions of backward ("AddmmBackward0"), those
/// within others, too. Once for a process, further calls do nothing. Cost: some 200 ns an operator; else nothing.
void trace_operators_if_asked();

}  // namespace lockstep

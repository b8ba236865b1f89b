// Where a rank was, in words.
#pragma once

#include <string>

#include "lockstep/view/explain/situation.h"

namespace lockstep::view {

/// "rank 1 (pid 4242)"; a rank of another host has no pid here.
std::string name_of(const Situation& situation, int world_rank);

/// "all_reduce #5 (sum of f32 x 1000) in group "world"".
std::string text_of(const Situation& situation, const trace::OpenCall& call);
std::string text_of(const Situation& situation, const trace::CollectiveEvent& call);
/// The same without number and group.
std::string text_of(const Situation::Called& what);

/// "stopped (by SIGSTOP or a debugger), outside of any collective for 2.3 s, after barrier #4 in group
/// "world"", "in all_reduce #5 (sum of f32 x 1000) in group "world" for 2.0 s".
std::string place_of(const Situation& situation, const Standing& standing);

/// "killed by signal 9 (SIGKILL)", "ended with exit code 3"; "" while it runs.
std::string ending_of(const trace::FlightRank& rank);

/// A line about it: place, for whom it waits, and what became of it.
std::string line_of(const Situation& situation, const Standing& standing);

}  // namespace lockstep::view

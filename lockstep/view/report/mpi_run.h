// A run of an MPI program: it has neither steps nor a record, and its calls say what can be said.
#pragma once

#include "lockstep/view/report/analysis.h"

namespace lockstep::view {

/// Adds what ranks stayed in calls of MPI, how long they waited in them, and who came late. Nothing where there are none.
void add_mpi_calls(const RunData& run, Analysis& analysis);

}  // namespace lockstep::view

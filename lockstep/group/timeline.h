// A timeline of a part of a run, where the program itself says which: under every launcher, and without one.
#pragma once

#include <memory>
#include <string>

#include "lockstep/group/group.h"

namespace lockstep {

/// What all ranks do from its making until write(), in the file that `lockstep run --timeline` makes of a whole job
/// (docs/profiling.md).
///
///   TimelineRecording recording(world, "steps.json");
///   for (...) step();
///   recording.write();
///
/// What it is made of is recorded in any case. A thread of its own takes it from a ring every 20 ms; some million events are
/// kept in all, and of more every second slice of time is left out, as the file says. Not for several threads at once.
class TimelineRecording {
 public:
  /// Collective over the world. Rank 0 will write `path`. Cost: 8 broadcasts and 9 gathers of 8 bytes, by which clocks of hosts
  /// are held against each other.
  /// Throws Error: invalid_argument for a group that is not the world, and on all ranks if `path` is a folder or in none;
  /// system if a thread cannot be started; as collectives do.
  TimelineRecording(Group world, std::string path);
  /// What was not written is gone.
  ~TimelineRecording();
  TimelineRecording(const TimelineRecording&) = delete;
  TimelineRecording& operator=(const TimelineRecording&) = delete;

  /// Collective. Ends it, and returns when rank 0 has written the file: on rank 0 what is to be known of it, as `lockstep run` says
  /// it; "" on others. Cost: as at the beginning, and a gather of 60 bytes an event.
  /// Throws Error: system on all ranks if the file cannot be written; as collectives do.
  std::string write();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep

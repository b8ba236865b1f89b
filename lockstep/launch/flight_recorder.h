// A job that failed leaves a file from which can be told which rank was where, and why the others waited.
// What the ranks did stands in the control page, which survives them; how their processes were when the
// failure was noticed has to be looked up then, because the launcher ends them soon after.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "lockstep/launch/verdict.h"
#include "lockstep/memory/control_page.h"
#include "lockstep/trace/flight_record.h"

namespace lockstep::launch {

/// What the page holds. States and endings of processes are left open, and so are job and at_ns.
trace::FlightRecord read_record(const ControlPage& page);

/// As the kernel sees it now.
trace::ProcessState state_of(pid_t pid);

class FlightRecorder {
 public:
  /// Writes `folder`/`job`/flight_record.json; nothing at all where `folder` is empty.
  FlightRecorder(std::string folder, std::string job) : folder_(std::move(folder)), job_(std::move(job)) {}

  /// The first failure has been noticed. `started`: the processes of the ranks, in their order.
  void note_failure(const ControlPage& page, std::span<const pid_t> started);

  /// After the end of all ranks. Returns a line for the user, how to read it or why it could not be written;
  /// nothing if no rank has used Lockstep.
  std::string write(const ControlPage& page, std::span<const pid_t> started,
                    std::span<const Ending> endings) const;

 private:
  std::string folder_;
  std::string job_;
  std::uint64_t failed_at_ns_ = 0;
  std::vector<trace::ProcessState> states_;  // by rank
};

}  // namespace lockstep::launch

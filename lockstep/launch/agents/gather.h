// The start of a job on several hosts: an agent on each, all at once; whether every host can take part is known before any
// rank starts, and what is wrong is said of all of them in one table.
#pragma once

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/launch/guard.h"
#include "lockstep/launch/job.h"
#include "lockstep/launch/output/rank_output.h"
#include "lockstep/launch/run.h"

namespace lockstep::launch::agents {

/// Some hosts cannot take part; nothing runs anywhere. The text has a line for each.
class CannotGather : public Error {
 public:
  CannotGather(int exit_code, const std::string& table)
      : Error(ErrorCode::system, table), exit_code_(exit_code) {}
  /// That of the first host in the table: 127 and 126 as shells have it for a program, 128 + signal where we were told to end, else 1.
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Somebody else listens where launchers meet (NodeOptions). Nothing has been started.
class PlaceTaken : public Error {
 public:
  explicit PlaceTaken(const Error& reason) : Error(reason) {}
};

/// The hosts of options.hosts, or of the launchers that have come (NodeOptions), with their ranks started. What ranks print goes to `output`; where they are placed is said there.
/// Hosts that turn out to be one machine get one agent. Takes the guard's orders meanwhile. Throws CannotGather, CannotExecute,
/// PlaceTaken, Error{system}.
Job::Hosts gather(const RunOptions& options, const Attempt& attempt, GuardLine& guard, RankOutput& output);

}  // namespace lockstep::launch::agents

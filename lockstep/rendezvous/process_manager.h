// Launchers of MPI (mpiexec, srun) offer the processes that they start a small noticeboard, long before any of
// them could reach another: enough to tell where rank 0 is, and to share a secret.
#pragma once

#include <string>

#include "lockstep/base/deadline.h"

namespace lockstep {

/// What the processes of one job see of it. One thread at a time. Errors of all calls: timeout; peer_lost where the
/// launcher is gone; corrupt_data where it answers something else than its protocol has; each names the protocol and the call.
class ProcessManager {
 public:
  virtual ~ProcessManager() = default;

  /// Of this job alone among those that run on its hosts. Of letters, digits, '-', '_', '.' and '@'.
  virtual std::string job(Deadline deadline) = 0;
  /// Both are text without blanks, ';' and '='; `key` of 1 to 48 bytes, `value` of 1 to 512. Others see it after fence().
  virtual void put(const std::string& key, const std::string& value, Deadline deadline) = 0;
  /// Returns when all ranks have called it.
  virtual void fence(Deadline deadline) = 0;
  /// What some rank has put. Error{mismatch}: nobody has.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
};

}  // namespace lockstep

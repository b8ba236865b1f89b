// Ranks on several hosts that a launcher of MPI has started know nobody's address, but all see the launcher's noticeboard:
// rank 0 says there where it is, and a secret for the job.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/secret.h"
#include "lockstep/base/socket.h"
#include "lockstep/rendezvous/process_manager.h"

namespace lockstep {

struct MeetingPlace {
  Endpoint store = {};
  std::shared_ptr<Listener> listener = {};  ///< on rank 0, which is to serve the store there
  std::optional<Secret> secret = {};
};

/// Collective over all processes of the board. `address`: where rank 0 can be reached, on rank 0; nullopt on all others. `own`: a
/// secret that the user has given to all ranks, and which is not shown on the board. Throws the board's errors; Error{mismatch}
/// where some ranks have a secret and rank 0 has none, or the other way round; corrupt_data; system.
MeetingPlace meet_on(ProcessManager& board, const std::optional<std::string>& address,
                     const std::optional<Secret>& own, Deadline deadline);

}  // namespace lockstep

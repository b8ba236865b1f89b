// What a group's calls are carried out with on one of its ranks. Tasks, the quick path and blame work on these
// parts; none of them knows the queue (native_backend.h), or how a group fails.
#pragma once

#include <memory>
#include <optional>

#include "lockstep/backend/call_record.h"
#include "lockstep/backend/native/links.h"
#include "lockstep/execute/arrivals.h"
#include "lockstep/execute/exchange.h"
#include "lockstep/execute/mailbox.h"
#include "lockstep/execute/plan.h"
#include "lockstep/execute/progress.h"
#include "lockstep/kernel/copy.h"
#include "lockstep/schedule/staging_ring.h"
#include "lockstep/transport/members.h"

namespace lockstep {

/// Under the progress lock.
struct GroupParts {
  Members members;
  std::shared_ptr<HostRegion> region;  ///< of the ranks on this host
  bool is_one_host = true;             ///< all ranks are on this one
  std::vector<int> here;               ///< the ranks on this host, by local number
  std::optional<Arrivals> arrivals;  ///< of the ranks on this host, by local number; where there are several
  PlanCache plans;
  StagingRing staging_ring;
  kernel::CrossingCopies crossing;
  Links links;                         ///< of collectives
  std::shared_ptr<Exchange> exchange;  ///< between hosts, where an engine of its own is
  Mailbox mailbox;                     ///< of messages
  CallRecord record;
  const Progress& progress;  ///< of the process

  int rank() const { return members.rank(); }
  int ranks() const { return members.size(); }
};

}  // namespace lockstep

// A group's wishes in the words of its backend.
#pragma once

#include <memory>

#include "lockstep/backend/native/native_backend.h"
#include "lockstep/group/impl.h"

namespace lockstep {

/// Of the group's ranks, as in Call: by what each found out, or LOCKSTEP_RANKS_PER_NODE.
int ranks_per_node(const Group::Impl& impl);

/// Where a rank's calls are recorded, of all its groups.
RecordPlaces record_places(const Context& context);

/// `region`: of the group's ranks on this host.
NativeOptions native_options(const Group::Impl& impl, std::shared_ptr<HostRegion> region,
                             std::unique_ptr<Transport> transport);

}  // namespace lockstep

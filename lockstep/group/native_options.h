// A group's wishes in the words of its backend.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/backend/native/native_backend.h"
#include "lockstep/group/impl.h"

namespace lockstep {

/// Whether all of the group's ranks are.
bool is_on_one_host(const Group::Impl& impl);

/// Of the group's ranks, as in Call: by what each found out, or LOCKSTEP_RANKS_PER_NODE.
int ranks_per_node(const Group::Impl& impl);

/// `region`: of the group's ranks on this host; `page_rank`: group rank -> number in the control page, -1:
/// another host.
NativeOptions native_options(const Group::Impl& impl, std::shared_ptr<HostRegion> region,
                             std::vector<int> page_rank, std::unique_ptr<Transport> transport);

}  // namespace lockstep

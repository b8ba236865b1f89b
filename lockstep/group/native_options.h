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

/// What the group's parent has for it: a group that is made of another has its arenas there, so that memory is reached in both.
HostMemory lent_to(const Group::Impl& impl);
/// Whether who leaves the group leaves the job.
bool is_whole_job(const Group::Impl& impl);
/// Each rank's arena in the group's own region.
std::size_t own_arena_bytes(const Group::Impl& impl);
/// What a new region of the group needs before it is used.
void borrow_arenas(const Group::Impl& impl, HostRegion& region);

/// `region`: of the group's ranks on this host.
NativeOptions native_options(const Group::Impl& impl, std::shared_ptr<HostRegion> region,
                             std::unique_ptr<Transport> transport);

}  // namespace lockstep

// The worlds of a job whose ranks may die and come back: each is made of the ranks of one view.
#pragma once

#include "lockstep/group/identity.h"
#include "lockstep/group/place_in_job.h"

namespace lockstep {

/// The views of this process's job, which it comes to when first asked. REQUIRES: the place's mutex, identity.incarnation.
JobViews& views_of(PlaceInJob& place, const Identity& identity, const InitOptions& options);

/// What has joined the page for this process, and is there as long as any of its groups. Its groups are told apart by their names
/// alone: they are no world's. REQUIRES: as above.
std::shared_ptr<Context> joined_context(PlaceInJob& place, const Identity& identity,
                                        const InitOptions& options);

/// A group of these lives, of which this process is one, in this order. `name`: no two groups of the same lives have the same.
/// Collective over the lives. Throws Error: peer_lost, naming a rank that is out before all have come; timeout.
Group group_of_lives(const std::shared_ptr<Group::Impl>& root, const std::shared_ptr<JobViews>& views,
                     const std::vector<Life>& lives, const std::string& name);

/// The world of all ranks that are in the job's newest view, as soon as all of them have come to it; of the next view, where
/// there is one before that. In it ranks have the order of the view, and messages call them as the launcher does.
/// REQUIRES: the place's mutex, identity.incarnation. Throws Error: aborted where this process is out of the job; timeout.
Group join_view(PlaceInJob& place, const Identity& identity, const InitOptions& options);

}  // namespace lockstep

// A task that some ranks do for all of them, as writing a file, may fail on one of them alone, and the others
// would wait for it, or go on as if it had not. Here everybody learns how it ended, and those who throw throw
// the same.
#pragma once

#include <functional>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/group/group.h"

namespace lockstep {

/// What `task` throws here, as an Error: one of ours as it is, anything else one of code system with the
/// first line of its text.
std::optional<Error> failure_in(const std::function<void()>& task);

struct RankFailure {
  int rank = 0;  ///< in the group
  Error error;
};

// What follows is collective. Tasks that run on several ranks must not be collective themselves: where one
// fails, the others would wait in it.

/// Returns on every rank the failure of the lowest of those that have one. Cost: an all_gather of 8 bytes;
/// where there is one, a broadcast of its text.
std::optional<RankFailure> lowest_failure(const Group& group, const std::optional<Error>& mine);

/// Runs `task` on rank 0 alone; returns on every rank what it threw there. Cost: two broadcasts, of 8 bytes
/// and of the text, if there is any.
std::optional<Error> failure_on_rank_0(const Group& group, const std::function<void()>& task);

/// Runs `task` on every rank; returns on all of them what it threw on the lowest of those where it failed,
/// with "rank <world rank>: " before it unless the group has one rank. Cost: as lowest_failure().
std::optional<Error> failure_on_any_rank(const Group& group, const std::function<void()>& task);

/// The same, but if it fails, every rank throws that.
void on_rank_0(const Group& group, const std::function<void()>& task);
void on_every_rank(const Group& group, const std::function<void()>& task);

}  // namespace lockstep

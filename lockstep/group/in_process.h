// A world whose ranks are threads of this process: for tests, where a sanitizer sees every access, and for
// programs that want ranks without processes.
#pragma once

#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/group/group.h"

namespace lockstep {

/// One Group for each of `ranks` threads; each must be used by its thread alone.
std::vector<Group> in_process_world(int ranks, const GroupOptions& options = {},
                                    std::size_t arena_bytes = std::size_t{64} << 20);

/// Connects a subgroup of such a world. As connect() in impl.h.
void connect_in_process(Group::Impl& impl);

/// Carries the messages of a group of one to itself; made when first used.
Backend& to_itself(Group::Impl& impl);

}  // namespace lockstep

// Ranks that are threads of one process: the same rings and cells over ordinary memory, so that every
// algorithm is tested in one process, where sanitizers see all of it.
#pragma once

#include <memory>

#include "lockstep/memory/host_region.h"

namespace lockstep {

/// What the threads share. A thread cannot die on its own; one that ends early says goodbye like any rank.
struct SharedByThreads {
  std::shared_ptr<HostRegion> region;
  std::shared_ptr<ControlPage> page;

  static SharedByThreads make(int ranks, std::size_t arena_bytes);
};

}  // namespace lockstep

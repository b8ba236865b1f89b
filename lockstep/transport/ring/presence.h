// How ranks that are processes of one host notice that one of them died.
#pragma once

#include <functional>
#include <memory>

#include "lockstep/memory/host_region.h"

namespace lockstep {

/// Marks this process as present and tells whether others are. The mark is a lock on one byte of the region's
/// file, which the kernel drops with the process, however it ends; it needs no process ids, so containers may
/// differ. REQUIRES: all ranks have called it before any of them asks.
std::function<bool(int)> watch_presence(std::shared_ptr<HostRegion> region, int local_rank);

}  // namespace lockstep

// Named operations in the timeline: how long each waited for ranks that had not submitted it yet, and how long it took.
#pragma once

#include "lockstep/engine/named_operation.h"

namespace lockstep {

/// Of one that is over without a failure, by its times. Where nothing keeps ranges (TracedRange) it does nothing. Cost: some
/// 150 ns.
void trace_operation(const NamedOperation& operation) noexcept;

}  // namespace lockstep

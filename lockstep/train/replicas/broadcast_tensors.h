// Replicas of a model stay equal only if they start equal: one rank's values become everybody's.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "lockstep/group/group.h"
#include "lockstep/train/replicas/named_tensor.h"

namespace lockstep {

/// Collective. The root's values into everybody's tensors, which are alike on all ranks; they need not be
/// contiguous, nor in main memory. Cost: one broadcast for each 4 MiB, through the arena; what is on other
/// devices takes as much main memory meanwhile.
void broadcast_tensors(const Group& group, std::span<const NamedTensor> tensors, int root = 0);

/// Collective. The root's bytes into everybody's; each span is as long on all ranks. Cost: as above.
void broadcast_spans(const Group& group, std::span<const std::span<std::byte>> spans, int root = 0);

/// Collective. The root's text everywhere.
std::string broadcast_text(const Group& group, std::string text, int root = 0);

}  // namespace lockstep

// Sparse gradients, those of embeddings: of a large table each rank has a few rows, and the average has those
// of all of them.
#pragma once

#include <torch/torch.h>

#include "lockstep/group/group.h"

namespace lockstep {

/// Collective. Makes the parameter's grad() everybody's, added and divided by `contributors`.
/// `has_gradient`: or else this rank adds none, as where its grad() is undefined. Cost: three all_gathers, of
/// numbers of rows, rows and values; memory for all ranks' rows, in main memory.
void average_sparse(const Group& group, torch::Tensor parameter, bool has_gradient, int contributors);

}  // namespace lockstep

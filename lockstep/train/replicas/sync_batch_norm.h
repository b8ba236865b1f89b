// Batch normalisation over the samples of all ranks: with few samples a rank, each rank's own mean and
// variance are too rough, and other than those of one process with all samples.
#pragma once

#include <torch/torch.h>

#include <cstddef>

#include "lockstep/group/group.h"

namespace lockstep {

/// From now on every BatchNorm1d, 2d and 3d in `module`, in training, takes mean and variance over all ranks'
/// samples; ranks may have different numbers of them, also none (libtorch itself refuses one value a
/// channel). Modules stay the objects that they are, wherever the program keeps them; their parameters,
/// buffers and evaluation do not change. Returns how many there are.
///
/// Forward and backward through such a module are collective: all ranks run them in the same order, and as
/// often (join() is not for it). Gradients are exact: with DistributedDataParallel or ShardedOptimizer what
/// one process with all samples would have. Later conversions, .to() and saving do no harm; a copy made by
/// clone() is an ordinary one. It lasts as long as the module; calling it again with another group moves it
/// there.
///
/// Throws Error{unsupported} for one with neither affine parameters nor running statistics. A forward throws
/// Error{invalid_argument} if no rank has a value for a channel, or the group has ended. Cost: an all_gather
/// of 16 bytes a channel in forward, an all_reduce of as many in backward; on a GPU
/// they alone go through main memory. Source: Ioffe & Szegedy 2015; combination of variances by Chan, Golub &
/// LeVeque 1979.
std::size_t convert_sync_batch_norm(torch::nn::Module& module, const Group& group);

/// Whether one in `module` is.
bool has_sync_batch_norm(const torch::nn::Module& module);

}  // namespace lockstep

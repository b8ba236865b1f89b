// The core's collectives for tensors: what <lockstep/group/collectives.h> says of buffers holds for them, and
// a mismatch between ranks is found the same way (by element count and type; shapes are not compared).
//
// Tensors on a GPU go through main memory: one has its new elements when wait() has returned, or test() has
// said true. Cost: a copy down before the collective, one up after it, and as much main memory. Ranks may
// have tensors on different devices.
#pragma once

#include <torch/torch.h>

#include "lockstep/group/group.h"

namespace lockstep {

/// Reduces `tensor` element by element over all ranks of `group`, in place; every rank ends with the same
/// bits. `tensor` is contiguous, and its elements are integers, bool, f16, bf16, f32, f64, complex64 or
/// complex128 (which operation is for which: kernel/reduce.h). Autograd does not see it: a gradient does not
/// flow through. The Work borrows the tensor's memory: keep the tensor until it is over.
/// Throws Error at once: invalid_argument, unsupported (saying what the tensor is); the rest comes from
/// wait().
Work all_reduce(const Group& group, const torch::Tensor& tensor, ReduceOp op = ReduceOp::sum);

/// Copies the root's `tensor`, contiguous and of any type, into everybody's. Otherwise as above.
Work broadcast(const Group& group, const torch::Tensor& tensor, int root);

/// Concatenates everybody's `input`, in rank order, in everybody's `output` of size() times as many elements
/// of the same type. Both contiguous, and of any type. Otherwise as above.
Work all_gather(const Group& group, const torch::Tensor& input, const torch::Tensor& output);

/// Sends `tensor` to one rank, which receives as many bytes into one of its own. Both contiguous, and of any
/// type. Otherwise as above.
Work send(const Group& group, const torch::Tensor& tensor, int destination);
Work recv(const Group& group, const torch::Tensor& tensor, int source);

}  // namespace lockstep

// The core's collectives for tensors: what <lockstep/group/collectives.h> says of buffers holds for them (who
// has a block for whom, what may be in place, what a call costs), and a mismatch between ranks is found the
// same way, by element count and type. Shapes are not compared: [2, 3] and [6] are six elements.
//
// Common to all: tensors are contiguous; an input and its output are of one type. What is reduced are
// integers, bool, f16, bf16, f32, f64, complex64 or complex128 (which operation is for which:
// kernel/reduce.h); the others move any type. Autograd does not see it: a gradient does not flow through, but
// it is told that outputs change. A Work borrows the tensors' memory, and `received`: keep them until it is
// over. A tensor that a rank's call does not look at may be an undefined one.
// They throw Error at once: invalid_argument (undefined, not contiguous, sizes that do not fit, a rank that is
// none), unsupported (types, sparse and meta tensors), saying what the tensor is; the rest comes from wait().
//
// Tensors on a GPU stay there where each rank has one of its own and there is an NCCL, or all share one (docs/gpu.md): the call comes
// after what libtorch's current stream does, and after wait() that stream, not the host, waits for it. A call's tensors are on one
// device then. Otherwise, and in messages and what NCCL does not reduce, they go through main memory: a tensor has its new elements
// when wait() has returned, or test() has said true. Cost: a copy down before the collective, one up after it, and as much
// main memory. Where ranks have GPUs, a call's tensors are on them on all ranks, or in main memory on all.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "lockstep/group/collectives.h"
#include "lockstep/group/group.h"

namespace lockstep {

/// Reduces `tensor` element by element over all ranks of `group`, in place; every rank ends with the same
/// bits.
Work all_reduce(const Group& group, const torch::Tensor& tensor, ReduceOp op = ReduceOp::sum,
                CollectiveOptions options = {});

/// The same for several of one type, on one device where that is a GPU, as one call: none is over before all are. Ranks pass as many, of the
/// same sizes, in one order. Cost: as all_reduce_grouped() of buffers (grouped.h); on a GPU one call of NCCL for 32.
Work all_reduce_grouped(const Group& group, const std::vector<torch::Tensor>& tensors,
                        ReduceOp op = ReduceOp::sum, CollectiveOptions options = {});

/// The root gets the sum of everybody's `input` in `output`, of as many elements; other ranks' `output` is
/// not looked at.
Work reduce(const Group& group, const torch::Tensor& input, const torch::Tensor& output, int root,
            ReduceOp op = ReduceOp::sum, CollectiveOptions options = {});

/// `input` has size() times as many elements as `output`: a block for each rank, which gets the sum of
/// everybody's.
Work reduce_scatter(const Group& group, const torch::Tensor& input, const torch::Tensor& output,
                    ReduceOp op = ReduceOp::sum, CollectiveOptions options = {});

/// Copies the root's `tensor` into everybody's.
Work broadcast(const Group& group, const torch::Tensor& tensor, int root);

/// The root's `input` has size() times as many elements as `output`: a block for each rank. Other ranks'
/// `input` is not looked at.
Work scatter(const Group& group, const torch::Tensor& input, const torch::Tensor& output, int root);

/// The root's `output` gets everybody's `input`, in rank order, and has size() times as many elements. Other
/// ranks' `output` is not looked at.
Work gather(const Group& group, const torch::Tensor& input, const torch::Tensor& output, int root);

/// The same in everybody's `output`.
Work all_gather(const Group& group, const torch::Tensor& input, const torch::Tensor& output);
/// outputs[r] gets rank r's `input`, of as many elements: it may have others than outputs[0], as long as
/// `outputs` are of the same sizes on all ranks. None overlaps another. Cost: as much main memory as all of
/// them, and one more copy.
Work all_gather(const Group& group, const torch::Tensor& input, const std::vector<torch::Tensor>& outputs);

/// Both have a block of as many elements for each rank: block q of `input` becomes block r of rank q's
/// `output`, where r is this rank.
Work all_to_all(const Group& group, const torch::Tensor& input, const torch::Tensor& output);

/// Sends `tensor` to one rank, which may be this one, and which receives as many bytes into one of its own.
/// `tag`: 0 or more; messages to one rank with one tag arrive in order.
Work send(const Group& group, const torch::Tensor& tensor, int destination, int tag = 0);
/// `source` may be any_source, `tag` any_tag; `received` then says what it was, once the Work is over.
Work recv(const Group& group, const torch::Tensor& tensor, int source, int tag = 0,
          Received* received = nullptr);

}  // namespace lockstep

// How DistributedDataParallel averages gradients.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/train/data_parallel/communication_hook.h"
#include "lockstep/train/replicas/non_finite.h"

namespace lockstep {

/// Alike on all ranks.
struct DataParallelOptions {
  /// Gradients are averaged in buckets; one is full when it holds at least so many bytes. Small buckets begin
  /// early, large ones cost fewer waits. Where gradients are averaged in place (data_parallel.h), which waits for nobody, a cap
  /// of 25 MiB, after a first of 1, stands for 4.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_cap_bytes = std::size_t{25} << 20;
  /// Each training forward begins with rank 0's buffers (batch norm's running statistics). Costs one
  /// broadcast of them all, and that ranks wait for rank 0 there.
  bool broadcast_buffers = true;
  /// A backward may leave parameters without a gradient, other ones on each rank. One that no rank has used
  /// keeps its grad() as it was.
  bool find_unused_parameters = false;
  /// Every backward is like the first: the same parameters get a gradient, each as often. Serves parameters
  /// that get none, and those that get several in one pass (checkpointed parts that share them).
  bool static_graph = false;
  /// Opens a SharedHeap for this process, unless it has one or the group has one rank: what libtorch allocates on the CPU is used
  /// again then, without the page faults that new memory costs at each step, and ranks of one host read gradients where they are.
  bool shared_heap = true;
  /// What becomes of a backward with gradients that are infinite or not numbers; see non_finite.h. With skip
  /// no parameter has a gradient after it, on any rank, so that an optimizer's step changes nothing.
  /// Gradients that are sparse are not looked at. Costs one more look at each gradient, unless they are
  /// ignored.
  NonFinite non_finite = NonFinite::ignore;
  /// Every rank throws Error{mismatch}, naming a parameter, two ranks and their values, where the replicas are no
  /// longer equal: optimizers that do not do the same. A few elements are compared, other ones in each
  /// backward, in a message that there is anyway. Off for hooks that leave ranks different gradients, and for
  /// ranks that are to train on their own for a while.
  bool compare_parameters = true;
  /// How gradients become everybody's; null: the average as it is. See communication_hook.h, power_sgd.h.
  std::shared_ptr<CommunicationHook> communication_hook = nullptr;
};

struct JoinOptions {
  /// Gradients are divided by the number of all ranks, instead of those that still have inputs.
  bool divide_by_initial_size = false;
  /// As soon as a rank has no inputs left, every rank throws Error{aborted} naming it.
  bool throw_on_early_termination = false;
};

}  // namespace lockstep

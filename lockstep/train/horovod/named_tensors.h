// Named collectives of tensors: what Horovod calls allreduce(tensor, name), allgather, broadcast, alltoall
// and reducescatter. See engine/named_collectives.h for names, orders, joining and process sets.
#pragma once

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/named_collectives.h"

namespace lockstep {

/// A tensor that will be there: as a handle of Horovod's.
class [[nodiscard]] NamedResult {
 public:
  NamedResult(torch::Tensor result, Work work)
      : NamedResult(std::make_shared<torch::Tensor>(result), std::move(work), result.device()) {}
  /// Of a tensor that is made when the others' rows are known, and goes to `device` then.
  NamedResult(std::shared_ptr<torch::Tensor> result, Work work, torch::Device device)
      : result_(std::move(result)), work_(std::move(work)), device_(device) {}

  /// Whether it is there, without waiting. Throws as wait() does.
  [[nodiscard]] bool test() { return work_.test(); }
  /// Throws as NamedCollectives says.
  torch::Tensor wait();

 private:
  std::shared_ptr<torch::Tensor> result_;  // before the work, which writes to it
  Work work_;
  torch::Device device_;
};

// All of these: tensors are dense, of a type that collectives know (all_reduce, reduce_scatter) or any (the
// others); Error{unsupported} and {invalid_argument} are thrown at once. Inputs are copied where the result is
// another tensor; in-place forms take contiguous ones, and keep them until the end.
//
// Operations on tensors on a GPU are carried there where the ranks' GPUs reach each other, after what libtorch's current stream has by
// now, and not at once: the call returns. Others go through a copy in main memory, for which it waits. Tensors have
// the result when wait() has returned. Ranks may have theirs on different devices, but each on one GPU.

/// The average of all ranks' tensors, unless told otherwise; all have the same shape.
NamedResult all_reduce(const NamedCollectives& named, const torch::Tensor& tensor, const std::string& name,
                       ReduceOp op = ReduceOp::average, CollectiveOptions options = {});
/// In place.
NamedResult all_reduce_(const NamedCollectives& named, const torch::Tensor& tensor, const std::string& name,
                        ReduceOp op = ReduceOp::average, CollectiveOptions options = {});
/// Several in place, of one type, which begin together.
Work all_reduce_grouped_(const NamedCollectives& named, const std::vector<torch::Tensor>& tensors,
                         const std::string& name, ReduceOp op = ReduceOp::average,
                         CollectiveOptions options = {});
/// The root's tensor; all have the same shape.
NamedResult broadcast(const NamedCollectives& named, const torch::Tensor& tensor, int root,
                      const std::string& name);
NamedResult broadcast_(const NamedCollectives& named, const torch::Tensor& tensor, int root,
                       const std::string& name);
/// All ranks' tensors one after the other along the first dimension, which may differ between ranks.
NamedResult all_gather(const NamedCollectives& named, const torch::Tensor& tensor, const std::string& name);
/// splits[r] rows go to rank r; the result is what came from all, in rank order. Without splits all get as
/// many.
NamedResult all_to_all(const NamedCollectives& named, const torch::Tensor& tensor, const std::string& name,
                       const std::vector<std::int64_t>& splits = {});
/// This rank's rows of the average (or as told) of all; the first ranks have one more where they do not
/// divide evenly.
NamedResult reduce_scatter(const NamedCollectives& named, const torch::Tensor& tensor,
                           const std::string& name, ReduceOp op = ReduceOp::average,
                           CollectiveOptions options = {});

}  // namespace lockstep

// Where the gradients lie that travel together: the life of buckets, in main memory or on the GPU on which the parameters
// are. Each gradient has a place in one of them, and autograd takes that place for grad() where it can; from elsewhere a
// gradient is copied there, and the average back.
//
//   parameters      0     1     2     3 (sparse)
//   buckets      [ 2 ][    1      ][     0     ]    made once backward's order is foreseen, and anew when it
//                                                  is known
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/data_parallel/bucket.h"
#include "lockstep/train/replicas/named_tensor.h"
#include "lockstep/train/tensor/device_copies.h"

namespace lockstep {

/// Whether elements lie in `gradient` as they do in `place`.
bool is_laid_out_as(const torch::Tensor& gradient, const torch::Tensor& place);

/// Thread safety: none.
class GradientBuckets {
 public:
  /// Where the gradient of a parameter belongs.
  struct Place {
    std::size_t bucket = 0, slot = 0;
    torch::Tensor tensor{};  ///< in the bucket, seen as the parameter is; undefined if the gradient is sparse
  };
  struct Filled {
    std::optional<Bucket> bucket{};    ///< in the arena
    BucketPlan on_gpu{};               ///< instead
    torch::Tensor flat{};              ///< all of it, one dimension
    std::optional<PageLocked> lock{};  ///< where gradients are on other devices
    DeviceCopies coming{};             ///< gradients into it that are under way

    const BucketPlan& plan() const { return bucket ? bucket->plan() : on_gpu; }
  };

  /// `sparse`: for each of `parameters`, whether its gradients are, which then are in no bucket. Throws what
  /// Group::allocate_bytes() does.
  GradientBuckets(Group group, std::vector<NamedTensor> parameters, const std::vector<char>& sparse,
                  const BucketLimits& limits);
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;
  /// Gradients that lie in buckets are copied out, so that they stay valid and are nobody else's.
  ~GradientBuckets();

  /// New buckets for another order, the same on all ranks; gradients that lie in the old ones move along.
  /// Views of the old ones keep their memory.
  void rebuild(std::span<const std::size_t> order);

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  /// Whether the parameter is still what it was: type, shape, device, trainable.
  bool fits(std::size_t parameter) const;
  bool is_sparse(std::size_t parameter) const { return gradients_[parameter].is_sparse; }
  const Place& place_of(std::size_t parameter) const { return gradients_[parameter].place; }
  /// Whether grad() is the place itself.
  bool lies_in_place(std::size_t parameter) const;

  /// In the order in which they are sent.
  const std::vector<Filled>& all() const { return buckets_; }
  std::size_t size() const { return buckets_.size(); }
  std::size_t bytes() const;
  /// Buckets are on a GPU, where the group's calls take them.
  bool are_on_gpu() const { return gpu_.has_value(); }
  /// Where they lie.
  torch::Device device() const { return gpu_.value_or(torch::kCPU); }

  /// Into its place, and if it comes from another device that takes a while.
  void put(std::size_t parameter, const torch::Tensor& gradient);
  /// On a GPU what the current stream does from now on comes after it, and nobody waits.
  bool has_arrived(std::size_t bucket);
  void wait_for(std::size_t bucket);
  /// What is in the place becomes grad(): the place itself where grad() is undefined or `is_new`, otherwise
  /// its values. To other devices that takes a while.
  void take_out(std::size_t parameter, bool is_new);
  void wait_for_taken_out() { going_.wait(); }

 private:
  struct Gradient {
    // Of the parameter, as it was:
    torch::ScalarType type;
    std::vector<std::int64_t> sizes;
    torch::Device device;
    bool is_sparse = false;
    Place place{};
  };

  void make(std::span<const std::size_t> order);
  std::optional<torch::Device> gpu_of_all() const;
  Filled make_on_gpu(BucketPlan plan) const;
  Filled make_in_main_memory(BucketPlan plan) const;

  Group group_;
  std::vector<NamedTensor> parameters_;
  BucketLimits limits_;
  std::vector<Gradient> gradients_;  // per parameter
  std::optional<torch::Device> gpu_;
  std::vector<Filled> buckets_;
  DeviceCopies going_;  // averages out of buckets
};

}  // namespace lockstep

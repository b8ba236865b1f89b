// Where the gradients lie that travel together: the life of buckets, in main memory or on the GPU on which the parameters
// are. Each gradient has a place in one of them, and autograd takes that place for grad() where it can; from elsewhere a
// gradient is copied there, and the average back.
//
//   parameters      0     1     2     3 (sparse)
//   buckets      [ 2 ][    1      ][     0     ]    planned once backward's order is foreseen, and anew when it
//                                                  is known
//
// Where gradients are averaged where they lie, a bucket has no memory before something is put into it.
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

/// Thread safety: none.
class GradientBuckets {
 public:
  /// Where the gradient of a parameter belongs.
  struct Place {
    std::size_t bucket = 0, slot = 0;
  };
  struct Filled {
    BucketPlan plan;
    std::optional<Bucket> bucket{};    ///< in the arena; on a GPU it has none
    torch::Tensor flat{};              ///< all of it, one dimension; undefined before it has memory
    std::optional<PageLocked> lock{};  ///< where gradients are on other devices
    DeviceCopies coming{};             ///< gradients into it that are under way
  };

  /// `sparse`: for each of `parameters`, whether its gradients are, which then are in no bucket. `in_place`: in main memory gradients are
  /// averaged where they are. Throws what Group::allocate_bytes() does.
  GradientBuckets(Group group, std::vector<NamedTensor> parameters, const std::vector<char>& sparse,
                  const BucketLimits& limits, bool in_place);
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
  /// The place, seen as the parameter is. Its bucket has memory from now on. REQUIRES: !is_sparse(). Throws as the constructor.
  const torch::Tensor& tensor_of(std::size_t parameter);
  /// Whether a gradient is one of the parameter that could lie in the place, however its elements are ordered.
  bool takes(std::size_t parameter, const torch::Tensor& gradient) const;
  /// Whether its elements, too, lie as they do there.
  bool is_laid_out_as_place(std::size_t parameter, const torch::Tensor& gradient) const;
  /// Whether grad() is the place itself.
  bool lies_in_place(std::size_t parameter) const;

  /// All places are zeros.
  void clear();
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
    std::vector<std::int64_t> strides;  ///< of the place
    torch::Device device;
    bool is_sparse = false;
    Place place{};
    torch::Tensor tensor{};  ///< the place; undefined before its bucket has memory
  };

  void make(std::span<const std::size_t> order);
  std::optional<torch::Device> gpu_of_all() const;
  void give_memory(Filled& bucket);
  torch::Tensor make_on_gpu(const BucketPlan& plan) const;
  void make_in_main_memory(Filled& bucket) const;

  Group group_;
  std::vector<NamedTensor> parameters_;
  BucketLimits limits_;
  bool in_place_;
  std::vector<Gradient> gradients_;  // per parameter
  std::optional<torch::Device> gpu_;
  std::vector<Filled> buckets_;
  DeviceCopies going_;  // averages out of buckets
};

}  // namespace lockstep

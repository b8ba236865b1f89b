// How the ranks' gradients become one: by default their average as it is; with a hook of fewer bytes, or in
// any way of the user's own.
#pragma once

#include <torch/torch.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/group/group.h"
#include "lockstep/train/tensor/arena_tensor.h"

namespace lockstep {

/// What a hook gets: gradients of this rank, which it replaces by everybody's.
struct GradientBucket {
  Group group;
  std::size_t number = 0;                ///< in the order in which buckets are sent
  torch::Tensor flat;                    ///< all of it, one dimension, in the arena or on the GPU; gaps are 0
  std::vector<torch::Tensor> gradients;  ///< parts of it, seen as their parameters are
  std::vector<std::string> names;        ///< of these parameters
  /// Ranks that have gradients: the average is the sum divided by it. Less than size() with uneven inputs,
  /// where the others' gradients are 0.
  int contributors = 1;

  /// `other`, which may be flat: contiguous and of a type that has an average. It becomes the average over the
  /// ranks of the bucket.
  Work average(const torch::Tensor& other) const;
  /// A contiguous tensor beside the bucket, its contents undefined, of which an average is cheap.
  torch::Tensor scratch(torch::IntArrayRef shape, torch::ScalarType type) const;
};

/// Derive from it to replace the average. All ranks have a hook that does the same; it serves one
/// DistributedDataParallel. Calls come from the thread that runs backward, in the same order on all ranks, so
/// that collectives of `bucket.group` fit together.
///
///   begin(0) ... begin(n)         while backward still computes other gradients
///   proceed(0) ... proceed(n)     when backward is over; each again as long as it returns another Work
///
/// Afterwards bucket.flat holds the same on all ranks. What it throws ends the backward, and the group.
class CommunicationHook {
 public:
  virtual ~CommunicationHook() = default;
  CommunicationHook() = default;
  CommunicationHook(const CommunicationHook&) = delete;
  CommunicationHook& operator=(const CommunicationHook&) = delete;

  /// With what ranks have to agree in: "fp16", "PowerSGD of rank 2".
  virtual std::string name() const = 0;
  /// The bucket's gradients are all there.
  virtual Work begin(const GradientBucket& bucket) = 0;
  /// The last Work of this bucket is over. Nothing: so is the bucket.
  virtual std::optional<Work> proceed(const GradientBucket&) { return std::nullopt; }
  /// Buckets were made anew: what the hook knows of their numbers is of no use any more.
  virtual void forget() {}

 private:
  friend class HookClaim;
  std::atomic<bool> is_claimed_ = false;
};

/// As long as it lives, the hook serves its owner.
class HookClaim {
 public:
  /// `hook` may be null. Throws Error{invalid_argument} if it serves somebody else.
  explicit HookClaim(std::shared_ptr<CommunicationHook> hook);
  HookClaim(const HookClaim&) = delete;
  HookClaim& operator=(const HookClaim&) = delete;
  ~HookClaim();

 private:
  std::shared_ptr<CommunicationHook> hook_;
};

/// The average, as if there were no hook.
class AllReduceHook final : public CommunicationHook {
 public:
  std::string name() const override { return "all_reduce"; }
  Work begin(const GradientBucket& bucket) override;
};

/// Gradients of f32 and f64 travel as halves: half the bytes. Inside a host the halves are added in f32 and
/// rounded once. fp16 has 11 bits of precision up to 65504; bf16 has 8 and the range of f32.
class HalfHook final : public CommunicationHook {
 public:
  /// `type`: torch::kHalf or torch::kBFloat16. Throws Error{invalid_argument} for others.
  explicit HalfHook(torch::ScalarType type);

  std::string name() const override;
  Work begin(const GradientBucket& bucket) override;
  std::optional<Work> proceed(const GradientBucket& bucket) override;
  void forget() override { halves_.clear(); }

 private:
  torch::ScalarType type_;
  std::map<std::size_t, torch::Tensor> halves_;  // of a bucket, by its number
};

}  // namespace lockstep

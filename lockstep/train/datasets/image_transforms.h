// Changes to a batch of images before it is trained on. Each sample has random numbers of its own, which
// follow from seed, epoch and the sample's index alone: whoever makes the batch, whenever, makes the same
// one, so it does not depend on threads, and a run that resumes sees what it would have seen.
//
//   RandomCrop(32, 4), RandomHorizontalFlip(), Normalize({0.4914, 0.4822, 0.4465}, {0.2023, 0.1994, 0.2010})
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/data/random.h"

namespace lockstep {

/// `images`: the batch, which it changes in place, or replaces. random[i]: numbers for image i; a transform
/// takes what it needs, and the next one goes on from there. Copies are called at the same time.
using BatchTransform = std::function<void(torch::Tensor& images, std::span<SplitMix64> random)>;

/// What a row of transforms gets for these samples. A sample that is twice in an epoch is twice the same.
std::vector<SplitMix64> transform_streams(std::uint64_t seed, std::uint64_t epoch,
                                          torch::ArrayRef<std::size_t> samples);

// Each of these throws Error{invalid_argument} from its constructor for numbers that make no sense, and from
// its call unless images are contiguous, f32 [B, C, H, W], in main memory. None takes gradients.

/// A part of `size` × `size` from anywhere in the image, around which lie `padding` zeros on all four sides.
/// Two numbers of each stream; one pass, into a new tensor.
class RandomCrop {
 public:
  explicit RandomCrop(std::int64_t size, std::int64_t padding = 0);
  /// Throws also if an image with its padding is smaller than `size`.
  void operator()(torch::Tensor& images, std::span<SplitMix64> random) const;

 private:
  std::int64_t size_;
  std::int64_t padding_;
};

/// Mirrors an image, left to right, with `probability`. One number of each stream; in place.
class RandomHorizontalFlip {
 public:
  explicit RandomHorizontalFlip(double probability = 0.5);
  void operator()(torch::Tensor& images, std::span<SplitMix64> random) const;

 private:
  double probability_;
};

/// (x - mean[c]) / stddev[c] in each channel c. No random numbers; in place.
class Normalize {
 public:
  Normalize(const std::vector<double>& mean, const std::vector<double>& stddev);
  /// Throws also if images have another number of channels.
  void operator()(torch::Tensor& images, std::span<SplitMix64> random = {}) const;

 private:
  std::vector<float> mean_;
  std::vector<float> stddev_;
};

}  // namespace lockstep

#include "lockstep/train/datasets/synthetic_images.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/random.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

enum Purpose : std::uint64_t { pattern_of_a_class, sample_of_a_class };

/// About normal, with mean 0 and variance 1: the sum of four uniform numbers (Irwin-Hall), which is one draw
/// and none of the functions that differ between machines.
float noise_of(std::uint64_t bits) {
  const std::uint64_t sum =
      (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
  constexpr float deviation = 0.57735027F * 65536;
  return (static_cast<float>(sum) - 2 * 65535.0F) / deviation;
}

}  // namespace

SyntheticImages::SyntheticImages(SyntheticImagesOptions options) : options_(std::move(options)) {
  const auto& [samples, shape, classes, noise, seed, first] = options_;
  const bool has_pixels =
      !shape.empty() && std::ranges::all_of(shape, [](std::int64_t size) { return size >= 1; });
  if (samples == 0 || classes < 1 || !has_pixels) {
    throw_invalid_argument(
        "SyntheticImages: expected at least 1 sample, 1 class and 1 pixel in every direction, found " +
        std::to_string(samples) + " samples, " + std::to_string(classes) + " classes and images of " +
        shape_text(shape));
  }
}

torch::data::Example<> SyntheticImages::get_batch(torch::ArrayRef<std::size_t> indices) {
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(indices.size())};
  shape.insert(shape.end(), options_.shape.begin(), options_.shape.end());
  torch::Tensor images = torch::empty(shape, torch::kFloat32);
  torch::Tensor labels = torch::empty({shape[0]}, torch::kInt64);
  auto* pixel = images.mutable_data_ptr<float>();
  auto* label = labels.mutable_data_ptr<std::int64_t>();
  const std::int64_t pixels = c10::multiply_integers(options_.shape);
  for (const std::size_t index : indices) {
    if (index >= options_.samples) {
      throw_invalid_argument("there is no sample " + std::to_string(index) + "; the set has " +
                             std::to_string(options_.samples) + ", counted from 0");
    }
    SplitMix64 sample = random_stream({options_.seed, sample_of_a_class, options_.first + index});
    const std::uint64_t image_class = sample.below(static_cast<std::uint64_t>(options_.classes));
    SplitMix64 pattern = random_stream({options_.seed, pattern_of_a_class, image_class});
    for (std::int64_t i = 0; i < pixels; ++i) {
      *pixel++ = static_cast<float>(2 * pattern.unit() - 1) + options_.noise * noise_of(sample.next());
    }
    *label++ = static_cast<std::int64_t>(image_class);
  }
  return {std::move(images), std::move(labels)};
}

}  // namespace lockstep

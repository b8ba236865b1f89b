#include "lockstep/train/datasets/image_transforms.h"

#include <algorithm>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/train/tensor/tensor_bytes.h"

namespace lockstep {
namespace {

/// Beside {seed, epoch, rank}, from which samples are drawn.
constexpr std::uint64_t purpose = 0x7472616e73666f72;  // "transfor"

/// `count`: of images; nullopt: any.
void require_images(const torch::Tensor& images, std::optional<std::size_t> count, const std::string& who) {
  const bool is_array = images.defined() && images.is_cpu() && images.layout() == torch::kStrided;
  if (is_array && images.scalar_type() == torch::kFloat32 && images.dim() == 4 && images.is_contiguous() &&
      (!count || images.size(0) == static_cast<std::int64_t>(*count))) {
    return;
  }
  throw_invalid_argument(who + ": expected contiguous images f32 [" + (count ? std::to_string(*count) : "N") +
                         ", channels, height, width] in main memory, found " +
                         (images.defined()
                              ? describe(images) + (is_array && !images.is_contiguous() ? ", with gaps" : "")
                              : "no tensor"));
}

struct Plane {
  const float* pixels;
  std::int64_t height;
  std::int64_t width;
};

/// The part of `plane` from (top, left) on, which may lie outside; there it is zero.
void crop(const Plane& plane, std::int64_t top, std::int64_t left, std::int64_t size, float* out) {
  const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, size);
  const std::int64_t end = std::clamp<std::int64_t>(plane.width - left, 0, size);
  for (std::int64_t y = top; y < top + size; ++y, out += size) {
    if (y < 0 || y >= plane.height || begin == end) {
      std::fill_n(out, size, 0.0F);
      continue;
    }
    std::fill(out, out + begin, 0.0F);
    std::copy_n(plane.pixels + y * plane.width + left + begin, end - begin, out + begin);
    std::fill(out + end, out + size, 0.0F);
  }
}

}  // namespace

std::vector<SplitMix64> transform_streams(std::uint64_t seed, std::uint64_t epoch,
                                          torch::ArrayRef<std::size_t> samples) {
  std::vector<SplitMix64> streams;
  streams.reserve(samples.size());
  for (const std::size_t sample : samples) streams.push_back(random_stream({seed, epoch, purpose, sample}));
  return streams;
}

RandomCrop::RandomCrop(std::int64_t size, std::int64_t padding) : size_(size), padding_(padding) {
  if (size >= 1 && padding >= 0) return;
  throw_invalid_argument("RandomCrop: expected a size of at least 1 and a padding of at least 0, found " +
                         std::to_string(size) + " and " + std::to_string(padding));
}

void RandomCrop::operator()(torch::Tensor& images, std::span<SplitMix64> random) const {
  require_images(images, random.size(), "RandomCrop");
  const std::int64_t channels = images.size(1);
  const std::int64_t height = images.size(2);
  const std::int64_t width = images.size(3);
  const std::int64_t rows = height + 2 * padding_ - size_;  // that the part can be moved by
  const std::int64_t columns = width + 2 * padding_ - size_;
  if (rows < 0 || columns < 0) {
    throw_invalid_argument("RandomCrop: images of " + std::to_string(height) + " x " + std::to_string(width) +
                           " with a padding of " + std::to_string(padding_) + " are smaller than " +
                           std::to_string(size_) + " x " + std::to_string(size_));
  }
  torch::Tensor cropped = torch::empty({images.size(0), channels, size_, size_}, torch::kFloat32);
  const auto* in = images.const_data_ptr<float>();
  auto* out = cropped.mutable_data_ptr<float>();
  for (SplitMix64& numbers : random) {
    const auto top =
        static_cast<std::int64_t>(numbers.below(static_cast<std::uint64_t>(rows) + 1)) - padding_;
    const auto left =
        static_cast<std::int64_t>(numbers.below(static_cast<std::uint64_t>(columns) + 1)) - padding_;
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      crop({in, height, width}, top, left, size_, out);
      in += height * width;
      out += size_ * size_;
    }
  }
  images = std::move(cropped);
}

RandomHorizontalFlip::RandomHorizontalFlip(double probability) : probability_(probability) {
  if (probability >= 0 && probability <= 1) return;
  throw_invalid_argument("RandomHorizontalFlip: expected a probability of 0 to 1, found " +
                         std::to_string(probability));
}

void RandomHorizontalFlip::operator()(torch::Tensor& images, std::span<SplitMix64> random) const {
  require_images(images, random.size(), "RandomHorizontalFlip");
  const std::int64_t rows = images.size(1) * images.size(2);
  const std::int64_t width = images.size(3);
  auto* image = images.mutable_data_ptr<float>();
  for (SplitMix64& numbers : random) {
    if (numbers.unit() < probability_) {
      for (std::int64_t row = 0; row < rows; ++row)
        std::reverse(image + row * width, image + (row + 1) * width);
    }
    image += rows * width;
  }
}

Normalize::Normalize(const std::vector<double>& mean, const std::vector<double>& stddev)
    : mean_(mean.begin(), mean.end()), stddev_(stddev.begin(), stddev.end()) {
  const bool is_positive = std::ranges::all_of(stddev_, [](float deviation) { return deviation > 0; });
  if (!mean.empty() && mean.size() == stddev.size() && is_positive) return;
  throw_invalid_argument(
      "Normalize: expected a mean and a standard deviation above 0 for each channel, found " +
      std::to_string(mean.size()) + " and " + std::to_string(stddev.size()) +
      (is_positive ? "" : ", of which one is not above 0"));
}

void Normalize::operator()(torch::Tensor& images, std::span<SplitMix64> /*random*/) const {
  require_images(images, std::nullopt, "Normalize");
  if (images.size(1) != static_cast<std::int64_t>(mean_.size())) {
    throw_invalid_argument("Normalize: expected images of " + std::to_string(mean_.size()) +
                           " channels, found " + std::to_string(images.size(1)));
  }
  const std::int64_t pixels = images.size(2) * images.size(3);
  auto* plane = images.mutable_data_ptr<float>();
  for (std::int64_t image = 0; image < images.size(0); ++image) {
    for (std::size_t channel = 0; channel < mean_.size(); ++channel) {
      const float mean = mean_[channel];
      const float deviation = stddev_[channel];
      for (std::int64_t i = 0; i < pixels; ++i) plane[i] = (plane[i] - mean) / deviation;
      plane += pixels;
    }
  }
}

}  // namespace lockstep
